// The JVM side of Slackwater, compiled inside Spark's driver by Spark's own Janino: no jar, no Scala.
//
// It holds each micro-batch query between two batches until the scheduler in Python grants it a turn, orders
// tasks among running batches by the scheduler's priorities, and reports what queries did, in one call a tick.
// Three rules hold throughout:
//   1. Nothing thrown here reaches a query: every entry point catches Throwable and lets the query go on.
//   2. A silent scheduler opens every gate: an open gate follows the user's own trigger, as plain Spark would.
//   3. What Spark keeps private is reached by name through Reach, and checked when we attach.
//
// Janino compiles Java 8 without lambdas or the diamond; casts stand where generics would have helped.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.MemoryUsage;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.WeakHashMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.Pool;
import org.apache.spark.scheduler.Schedulable;
import org.apache.spark.scheduler.SchedulingAlgorithm;
import org.apache.spark.scheduler.SchedulingMode$;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.scheduler.TaskSetManager;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.apache.spark.sql.streaming.Trigger;
import org.apache.spark.util.Clock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

public final class SlackwaterGate {

    static final Logger LOG = LoggerFactory.getLogger("org.apache.spark.slackwater");
    static final String POOL_KEY = "spark.scheduler.pool";
    static final String POOL_PREFIX = "slackwater-";
    static final String QUERY_ID_KEY = "sql.streaming.queryId";
    static final String BATCH_ID_KEY = "streaming.sql.batchId";
    // The interval put in place of the user's: so long that Spark always asks our clock to wait.
    static final long GATED_INTERVAL_MS = 1L << 52;
    static final long WATCHDOG_TICK_MS = 250L;
    static final int MAX_ERROR_LENGTH = 8000;
    static final int MAX_UNREAD_BATCHES = 64;
    static final int MAX_OPERATORS = 100;
    static final int MAX_PLAN_DEPTH = 500;
    static final int MAX_EXPRESSION_CHARS = 20000;
    static final int MAX_UNTOLD_ENDS = 200;

    private final Object session;
    private final SparkContext context;
    private final Map queriesInProgress; // SharedState.activeStreamingQueries: all sessions of this context
    private final int watchdogTicks;
    private final ObjectMapper json = new ObjectMapper();
    private final Map gates = new ConcurrentHashMap(); // run id -> Gate
    // StreamingQueryManager -> StartListener, of sessions that somebody still has: we must not keep the others.
    private final Map listeners = Collections.synchronizedMap(new WeakHashMap());
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition somethingHappened = lock.newCondition();
    private final TaskOrder taskOrder;
    private final Executors executors;
    private TaskTimes taskTimes = null; // while somebody wants to know, and so the next
    private volatile VmThreads vmThreads = null;
    private final List notes = new ArrayList(); // what could not be done, told once
    private final Map leavingPools = new ConcurrentHashMap(); // pool -> gate of a query that no longer needs it
    private final List untold = new ArrayList(); // last reports of queries that ended while nobody listened
    private volatile Map known = new HashMap(); // run ids that the scheduler named last: it has their facts
    private long happenings = 0L;
    private volatile int silentTicks = 0;
    private volatile boolean enforce; // false under a policy that only watches
    private volatile boolean open = true; // opened by the watchdog, or not yet closed by resync()
    private volatile boolean detached = false;
    private long opened = 0L;
    private volatile long cpuNanos = 0L; // spent in exchange(), up to the last one

    public SlackwaterGate(Object session, int watchdogTicks, boolean enforce) throws Exception {
        this.session = session;
        this.enforce = enforce;
        this.context = (SparkContext) Reach.call(session, "sparkContext");
        this.queriesInProgress = (Map) Reach.call(Reach.call(session, "sharedState"), "activeStreamingQueries");
        this.watchdogTicks = watchdogTicks;
        this.taskOrder = new TaskOrder(context, notes);
        this.executors = new Executors(context, notes);
    }

    /** Begin: listen to starts, pick up what runs already, watch the scheduler. Gates close at the first resync. */
    public void start() throws Exception {
        listenTo(session);
        adoptRunningQueries();
        Thread watchdog = new Thread("slackwater-watchdog") {
            public void run() {
                watch();
            }
        };
        watchdog.setDaemon(true);
        watchdog.start();
    }

    /**
     * The scheduler's one call a tick: enact what it decided, wait until something happens or the time is up,
     * and answer with the state of every query. A scheduler that could not decide is as silent as a dead one,
     * however often it calls.
     */
    public String exchange(String commands, long timeoutMs, boolean decided) throws Exception {
        long cpuBefore = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        if (decided) silentTicks = 0;
        enact(json.readTree(commands));
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        lock.lock();
        try {
            while (happenings == 0L) {
                long left = deadline - System.nanoTime();
                if (left <= 0L) break;
                somethingHappened.awaitNanos(left);
            }
            happenings = 0L;
        } finally {
            lock.unlock();
        }
        // Much of what is asked below would go on answering.
        if (context.isStopped()) throw new IllegalStateException("the Spark context is stopped");
        if (detached) throw new IllegalStateException("detached"); // its queries have not ended, but are gone from here
        adoptRunningQueries();
        if (decided) silentTicks = 0;
        String answer = json.writeValueAsString(report());
        cpuNanos += ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - cpuBefore;
        return answer;
    }

    /** From now on the CPU time of every batch's tasks is told, and of the JVM's own threads: for whoever records. */
    public synchronized void tellTaskTimes() {
        if (taskTimes != null || detached) return;
        vmThreads = new VmThreads();
        taskTimes = new TaskTimes(this);
        context.addSparkListener(taskTimes);
    }

    synchronized void tellNoTaskTimes() {
        if (taskTimes == null) return;
        context.removeSparkListener(taskTimes);
        taskTimes = null;
        vmThreads = null;
    }

    /** Close the gates again: called by the scheduler once it has seen a full report. */
    public void resync() {
        silentTicks = 0;
        if (open && !detached) {
            open = false;
        }
    }

    /** Give plain Spark back: at once to a query that waits, to one in a batch when that is over. */
    public void detach() {
        detached = true;
        open = true;
        taskOrder.restore();
        tellNoTaskTimes();
        synchronized (listeners) {
            Iterator it = listeners.entrySet().iterator();
            while (it.hasNext()) {
                Map.Entry entry = (Map.Entry) it.next();
                try {
                    Reach.callWith(entry.getKey(), "removeListener", entry.getValue());
                } catch (Throwable t) {
                    LOG.warn("Slackwater: could not remove a listener", t);
                }
            }
            listeners.clear();
        }
        Iterator it = gates.values().iterator();
        while (it.hasNext()) ((Gate) it.next()).release();
        gates.clear(); // queries that still need theirs have it as their clock
        happened();
    }

    /** How much is kept here, for whoever looks for leaks: by name. Reads only. */
    public String kept() throws Exception {
        ObjectNode out = json.createObjectNode();
        out.put("gates", gates.size());
        out.put("listeners", listeners.size());
        out.put("leaving_pools", leavingPools.size());
        out.put("known_runs", known.size());
        synchronized (notes) {
            out.put("notes", notes.size());
        }
        synchronized (untold) {
            out.put("untold_ends", untold.size());
        }
        return json.writeValueAsString(out);
    }

    /** The Spark context has ended, and with it everything to schedule. */
    public boolean over() {
        return context.isStopped();
    }

    // ---- what the scheduler wants -------------------------------------------------------------------------------

    void enact(JsonNode commands) {
        if (commands.has("enforce")) {
            boolean before = enforce;
            enforce = at(commands, "enforce").asBoolean();
            if (before && !enforce) {
                taskOrder.use(null, null);
                wakeEverybody();
            }
        }
        JsonNode grants = at(commands, "grants");
        for (int i = 0; grants != null && i < grants.size(); i++) {
            JsonNode one = (JsonNode) grants.get(i);
            if (one == null || !one.hasNonNull("run") || !one.hasNonNull("wait")) continue;
            Gate gate = (Gate) gates.get(at(one, "run").asText());
            if (gate != null) gate.grant(at(one, "wait").asLong());
        }
        JsonNode priorities = at(commands, "priorities");
        if (priorities == null) return;
        Map named = new HashMap();
        Map ranks = new HashMap();
        Map ungated = new HashMap();
        Iterator names = priorities.fieldNames();
        while (names.hasNext()) {
            String run = (String) names.next();
            named.put(run, run);
            Gate gate = (Gate) gates.get(run);
            double urgency = at(priorities, run).asDouble();
            // One that is no number has no place in an order, and a sort that meets it may throw.
            if (gate != null && !Double.isNaN(urgency)) {
                Double rank = Double.valueOf(urgency);
                ranks.put(gate.pool, rank);
                ranks.put(gate.queryId, rank);
                if (gate.userIntervalMs < 0L) ungated.put(gate.pool, gate.queryId);
            }
        }
        known = named;
        if (!passFreely()) taskOrder.use(ranks, ungated);
    }

    static JsonNode at(JsonNode node, String key) {
        return (JsonNode) node.get(key); // Janino takes the covariant get() for its bridge
    }

    // ---- what the scheduler hears -------------------------------------------------------------------------------

    ObjectNode report() {
        ObjectNode out = json.createObjectNode();
        out.put("now_ms", System.currentTimeMillis());
        out.put("steady_ns", System.nanoTime());
        out.put("open", open);
        out.put("opened", opened);
        out.put("cpu_ns", cpuNanos);
        out.put("cores", executors.cores());
        out.put("elastic", executors.elastic());
        out.put("processors", Runtime.getRuntime().availableProcessors());
        java.lang.management.OperatingSystemMXBean system = ManagementFactory.getOperatingSystemMXBean();
        if (system instanceof OperatingSystemMXBean) { // -1 where it cannot tell
            out.put("process_cpu_ns", ((OperatingSystemMXBean) system).getProcessCpuTime());
        }
        long elsewhere = executors.heapBytes();
        VmThreads own = elsewhere < 0L ? vmThreads : null; // they serve batches where tasks run
        if (own != null && own.read()) {
            out.put("collecting_cpu_ns", own.cpuNanos(VmThreads.COLLECTS));
            out.put("compiling_cpu_ns", own.cpuNanos(VmThreads.COMPILES));
        }
        out.put("ordinary_tasks", taskOrder.ordinaryTasks());
        MemoryUsage heap = ManagementFactory.getMemoryMXBean().getHeapMemoryUsage();
        ObjectNode memory = out.putObject("heap"); // where state is: what lives in executors' heaps is not told here
        memory.put("used", elsewhere < 0L ? heap.getUsed() : 0L);
        memory.put("max", elsewhere < 0L ? heap.getMax() : elsewhere);
        memory.put("live", elsewhere < 0L ? liveHeap() : 0L);
        ArrayNode told = out.putArray("notes");
        synchronized (notes) {
            for (int i = 0; i < notes.size(); i++) told.add((String) notes.get(i));
            notes.clear();
        }
        ArrayNode queries = out.putArray("queries");
        synchronized (untold) {
            for (int i = 0; i < untold.size(); i++) queries.add((ObjectNode) untold.get(i));
            untold.clear();
        }
        Iterator it = gates.values().iterator();
        while (it.hasNext()) {
            Gate gate = (Gate) it.next();
            boolean alive = gate.alive(); // asked once: a query must not go without its end being told
            queries.add(gate.report(alive, !known.containsKey(gate.runId)));
            if (!alive) {
                it.remove();
                left(gate);
            }
        }
        return out;
    }

    Gate gateOf(String queryId) {
        Iterator it = queryId == null ? Collections.emptyIterator() : gates.values().iterator();
        while (it.hasNext()) {
            Gate gate = (Gate) it.next();
            if (gate.queryId.equals(queryId)) return gate;
        }
        return null;
    }

    void left(Gate gate) {
        gate.tellUnknownTopic();
        if (gate.ownPool) leavingPools.put(gate.pool, gate);
    }

    /** While nobody listens: a query that has ended is not kept for it, only what is to be told of its end. */
    void letTheEndedGo() {
        Iterator it = gates.values().iterator();
        while (it.hasNext()) {
            Gate gate = (Gate) it.next();
            if (gate.alive()) continue;
            it.remove();
            left(gate);
            synchronized (untold) {
                if (untold.size() >= MAX_UNTOLD_ENDS) untold.remove(0);
                untold.add(gate.report(false, !known.containsKey(gate.runId)));
            }
        }
    }

    /**
     * What lives: each pool as the last collection that cared for it left it. A young collection leaves the old
     * generation's garbage where it is, so what it leaves says little. 0 before the first one of the old generation.
     */
    static long liveHeap() {
        long live = 0L;
        List pools = ManagementFactory.getMemoryPoolMXBeans();
        for (int i = 0; i < pools.size(); i++) {
            MemoryPoolMXBean pool = (MemoryPoolMXBean) pools.get(i);
            MemoryUsage usage = pool.getType() == MemoryType.HEAP ? pool.getCollectionUsage() : null;
            if (usage != null) live += usage.getUsed();
        }
        return live;
    }

    /** Something happened: the scheduler's call returns. Also for those who heard something elsewhere. */
    public void happened() {
        lock.lock();
        try {
            happenings++;
            somethingHappened.signalAll();
        } finally {
            lock.unlock();
        }
    }

    void note(String text) {
        synchronized (notes) {
            if (notes.size() < 100) notes.add(text);
        }
    }

    // ---- finding queries ----------------------------------------------------------------------------------------

    void listenTo(Object anySession) throws Exception {
        Object manager = Reach.call(anySession, "streams");
        synchronized (listeners) {
            if (detached || listeners.containsKey(manager)) return;
            StartListener listener = new StartListener(this);
            Reach.callWith(manager, "addListener", listener);
            listeners.put(manager, listener);
        }
    }

    /** Every query of the context that has no gate yet: running before we came, or started in another session. */
    void adoptRunningQueries() {
        if (detached) return;
        Iterator it = queriesInProgress.values().iterator();
        while (it.hasNext()) {
            Object execution = it.next();
            try {
                // One whose thread died in Spark's own code, past all handlers, stays among them for ever.
                Thread thread = (Thread) Reach.call(execution, "queryExecutionThread");
                if (thread.getState() == Thread.State.TERMINATED) continue;
                if (!gates.containsKey(String.valueOf(Reach.call(execution, "runId")))) {
                    adopt(execution, false);
                    listenTo(Reach.call(execution, "sparkSession"));
                }
            } catch (Throwable t) {
                LOG.warn("Slackwater: left a query alone", t);
            }
        }
    }

    /** Called by Spark on the stream's own thread, before its trigger executor is built (4.x) or used (3.5). */
    void queryStarted(String runId) throws Exception {
        Iterator it = queriesInProgress.values().iterator();
        while (it.hasNext()) {
            Object execution = it.next();
            if (runId.equals(String.valueOf(Reach.call(execution, "runId")))) {
                adopt(execution, true);
                return;
            }
        }
    }

    void adopt(Object execution, boolean onItsThread) throws Exception {
        Gate gate = new Gate(this, execution);
        if (gates.putIfAbsent(gate.runId, gate) != null) return;
        if (onItsThread) gate.usePool();
        gate.install();
        if (detached) gate.release();
        happened();
    }

    // ---- the watchdog -------------------------------------------------------------------------------------------

    /** Counts its own ticks, not wall time: a collection pause stops this thread as well and is no death. */
    void watch() {
        while (!detached || !leavingPools.isEmpty()) {
            try {
                Thread.sleep(WATCHDOG_TICK_MS);
                if (context.isStopped()) {
                    leavingPools.clear();
                    if (!detached) detach();
                    return;
                }
                removePoolsOfTheGone();
                silentTicks++;
                if (silentTicks > watchdogTicks && !open) {
                    opened++;
                    open = true;
                    LOG.warn("Slackwater: the scheduler has not been heard from; all gates are open and every "
                        + "query follows its own trigger until it is back.");
                    taskOrder.use(null, null);
                    wakeEverybody();
                }
                if (silentTicks > watchdogTicks) letTheEndedGo();
                synchronized (listeners) {
                    Iterator it = listeners.entrySet().iterator();
                    while (it.hasNext()) {
                        Map.Entry entry = (Map.Entry) it.next();
                        keepListening(entry.getKey(), entry.getValue());
                    }
                }
            } catch (Throwable t) {
                LOG.warn("Slackwater: the watchdog stumbled and goes on", t);
            }
        }
    }

    /** A stopped query's last tasks may outlive it, and a detached one's batch still runs: then try again. */
    void removePoolsOfTheGone() {
        Iterator it = leavingPools.entrySet().iterator();
        while (it.hasNext()) {
            Map.Entry entry = (Map.Entry) it.next();
            boolean needed = ((Gate) entry.getValue()).usesPool();
            if (!needed && taskOrder.forget((String) entry.getKey())) it.remove();
        }
        if (detached) return; // what is there now may be another attachment's
        // A foreachBatch in Python goes on when its query is stopped: a job of it brings a pool back that was removed.
        Iterator names = taskOrder.ownPools().iterator();
        while (names.hasNext()) {
            String pool = (String) names.next();
            // A query that starts has its gate before its pool.
            boolean known = leavingPools.containsKey(pool) || gates.containsKey(pool.substring(POOL_PREFIX.length()));
            if (!known) taskOrder.forget(pool);
        }
    }

    /** Spark drops a listener that was interrupted in a call, as when a query is stopped while it starts. */
    static void keepListening(Object manager, Object listener) throws Exception {
        Object[] present = (Object[]) Reach.call(manager, "listListeners");
        for (int i = 0; i < present.length; i++) {
            if (present[i] == listener) return;
        }
        Reach.callWith(manager, "addListener", listener);
    }

    void wakeEverybody() {
        Iterator it = gates.values().iterator();
        while (it.hasNext()) ((Gate) it.next()).wake();
        happened();
    }

    boolean passFreely() {
        return open || !enforce;
    }

    // =============================================================================================================

    /** Tells us of starts, on the stream's thread. */
    public static final class StartListener extends StreamingQueryListener {
        private final SlackwaterGate owner;

        StartListener(SlackwaterGate owner) {
            this.owner = owner;
        }

        public void onQueryStarted(StreamingQueryListener.QueryStartedEvent event) {
            try {
                if (!owner.detached) owner.queryStarted(String.valueOf(event.runId()));
            } catch (Throwable t) {
                LOG.warn("Slackwater: left a query alone", t);
            }
        }

        public void onQueryProgress(StreamingQueryListener.QueryProgressEvent event) {}

        public void onQueryIdle(StreamingQueryListener.QueryIdleEvent event) {}

        public void onQueryTerminated(StreamingQueryListener.QueryTerminatedEvent event) {
            owner.happened();
        }
    }

    /** One run of one query: its clock, where it waits, and what its batches reported. */
    public static final class Gate implements Clock {
        final SlackwaterGate owner;
        final Object execution;
        final Thread thread;
        final String runId;
        final String queryId;
        final String name;
        final Trigger trigger;
        final long userIntervalMs; // -1: not a repeating micro-batch query, never gated
        final String whyUngated;
        private final Object microBatch; // the execution, when it has watermarks to tell
        private final ReentrantLock lock = new ReentrantLock();
        private final Condition changed = lock.newCondition();
        private final List unread = new ArrayList(); // reports of batches that Python has not fetched
        private final Map worked = new LinkedHashMap(); // batch id -> TaskTime that Python has not fetched
        private Object replacedClock;
        private Properties localProperties; // of the stream's thread: Spark keeps its pool there
        private long waits = 0L; // the number of the present or last wait
        private long grantedWait = 0L;
        private boolean waiting = false;
        private volatile boolean first = true;
        private volatile boolean shed = false;
        private long since = System.currentTimeMillis();
        private long passedAt = 0L;
        private long passedNanos = 0L; // the same by a clock that nobody sets
        private long passedCpuNanos = -1L; // CPU time of the stream's thread then
        private volatile long lastBatch = -1L; // the newest that is over
        private String lastSeenProgress = "";
        private long nextWatermarkMs = -1L;
        String pool;
        boolean ownPool = false;

        Gate(SlackwaterGate owner, Object execution) throws Exception {
            this.owner = owner;
            this.execution = execution;
            this.thread = (Thread) Reach.call(execution, "queryExecutionThread");
            this.runId = String.valueOf(Reach.call(execution, "runId"));
            this.queryId = String.valueOf(Reach.call(execution, "id"));
            this.name = (String) Reach.call(execution, "name");
            this.trigger = (Trigger) Reach.call(execution, "trigger");
            this.pool = POOL_PREFIX + runId;
            String kind = trigger.getClass().getSimpleName();
            boolean microBatches = Reach.has(execution, "watermarkTracker");
            this.microBatch = microBatches ? execution : null;
            if (microBatches && kind.equals("ProcessingTimeTrigger")) {
                this.userIntervalMs = ((Long) Reach.call(trigger, "intervalMs")).longValue();
                this.whyUngated = null;
            } else {
                this.userIntervalMs = -1L;
                this.whyUngated = kind.replace("$", "");
            }
        }

        // ---- putting the gate in place and taking it away --------------------------------------------------------

        void install() throws Exception {
            if (userIntervalMs < 0L) {
                owner.note("query " + label() + " has a trigger of kind " + whyUngated
                    + ": it is not gated, but has its own prioritised pool");
                return;
            }
            if (executor() == null) { // 4.x, at the start: the executor will be built from these two
                replacedClock = Reach.get(execution, "triggerClock");
                Reach.set(execution, "triggerClock", this);
                Reach.set(execution, "trigger", Trigger.ProcessingTime(GATED_INTERVAL_MS, TimeUnit.MILLISECONDS));
            } else if (Reach.has(executor(), "intervalMs")) {
                first = thread.getState() == Thread.State.NEW || !inExecutor();
                settle();
            } else {
                owner.note("query " + label() + " runs on " + executor().getClass().getName()
                    + ", which Slackwater does not know: it is not gated");
            }
        }

        /**
         * The executor asks this clock. Seen to at every tick: one built while another thread installed the gate may
         * have read the fields too early, and a gate of an earlier attachment may just have restored its own.
         */
        void settle() throws Exception {
            if (userIntervalMs < 0L || shed || owner.detached) return;
            Object executor = executor();
            if (executor == null || !Reach.has(executor, "intervalMs")) return;
            Object clock = Reach.get(executor, "clock");
            if (clock != this) {
                replacedClock = sparksOwn(clock);
                Reach.set(executor, "clock", this); // first: Spark's own clock would sleep through the long interval
            }
            Reach.set(executor, "intervalMs", Long.valueOf(GATED_INTERVAL_MS));
        }

        /** Under the gate of an earlier attachment, of a class compiled then, lies the clock that it replaced. */
        static Object sparksOwn(Object clock) throws Exception {
            while (Reach.has(clock, "replacedClock")) clock = Reach.get(clock, "replacedClock");
            return clock;
        }

        Object executor() throws Exception {
            return Reach.has(execution, "triggerExecutor") ? Reach.get(execution, "triggerExecutor") : null;
        }

        boolean inExecutor() {
            StackTraceElement[] stack = thread.getStackTrace();
            for (int i = 0; i < stack.length; i++) {
                if (stack[i].getClassName().endsWith("ProcessingTimeExecutor")) return true;
            }
            return false;
        }

        /** After a detach. What a running batch still needs of the gate goes when it comes to wait. */
        void release() {
            lock.lock();
            try {
                if (ownPool) {
                    if (pool.equals(localProperties.getProperty(POOL_KEY))) localProperties.remove(POOL_KEY);
                    owner.leavingPools.put(pool, this);
                }
                if (userIntervalMs >= 0L && Reach.get(execution, "triggerClock") == this) {
                    Reach.set(execution, "trigger", trigger);
                    Reach.set(execution, "triggerClock", replacedClock);
                }
                if (waiting) shed();
                changed.signalAll();
            } catch (Throwable t) {
                LOG.warn("Slackwater: could not take the gate of query " + label() + " away; it stands open", t);
            } finally {
                lock.unlock();
            }
        }

        /**
         * Only while the stream's thread waits here: in a batch it may be about to ask the clock to wait until the
         * end of the long interval, which Spark's own clock would do.
         */
        void shed() throws Exception {
            if (shed) return;
            shed = true;
            Object executor = executor();
            if (executor != null && Reach.has(executor, "intervalMs") && Reach.get(executor, "clock") == this) {
                Reach.set(executor, "intervalMs", Long.valueOf(userIntervalMs));
                Reach.set(executor, "clock", replacedClock);
            }
        }

        /** On the stream's thread: its own pool, unless the user chose one. */
        void usePool() throws Exception {
            lock.lock();
            try {
                if (ownPool || owner.detached || !owner.enforce) return;
                String chosen = owner.context.getLocalProperty(POOL_KEY);
                // A query started inside another one's foreachBatch inherits that one's pool.
                if (chosen == null || chosen.startsWith(POOL_PREFIX)) {
                    localProperties = (Properties) Reach.call(owner.context, "getLocalProperties");
                    owner.taskOrder.addPool(pool);
                    owner.context.setLocalProperty(POOL_KEY, pool);
                    ownPool = true;
                } else {
                    pool = chosen;
                }
            } finally {
                lock.unlock();
            }
        }

        /** Jobs may still come into its pool. */
        boolean usesPool() {
            return alive() && pool.equals(localProperties.getProperty(POOL_KEY));
        }

        // ---- the clock that Spark asks ---------------------------------------------------------------------------

        public long nanoTime() {
            return System.nanoTime();
        }

        /** True time always; the executor's very first question is where the first batch waits. */
        public long getTimeMillis() {
            if (first && Thread.currentThread() == thread && inExecutor()) {
                first = false;
                hold();
            }
            return System.currentTimeMillis();
        }

        public long waitTillTime(long ignored) {
            first = false;
            if (passedAt == 0L) passed(); // ran before it had a gate
            hold();
            return System.currentTimeMillis();
        }

        void hold() {
            try {
                usePool();
                batchEnded();
                waitForTurn();
            } catch (InterruptedException stopping) {
                // stop() set the query's state before it interrupted: returning lets Spark end it in order.
            } catch (Throwable t) {
                LOG.warn("Slackwater: query " + label() + " passes its gate after an error of ours", t);
            } finally {
                lock.lock();
                waiting = false;
                passed();
                lock.unlock();
            }
        }

        void passed() {
            passedAt = System.currentTimeMillis();
            passedNanos = System.nanoTime();
            passedCpuNanos = cpuNanosHere();
        }

        static long cpuNanosHere() {
            return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime(); // -1 where it cannot tell
        }

        void waitForTurn() throws Exception {
            lock.lock();
            try {
                waits++;
                waiting = true;
                since = System.currentTimeMillis();
            } finally {
                lock.unlock();
            }
            owner.happened();
            lock.lock();
            try {
                while (grantedWait < waits) {
                    if (owner.detached) shed();
                    if (owner.passFreely()) {
                        long left = untilUserTriggerMs();
                        if (left <= 0L) return;
                        changed.await(left, TimeUnit.MILLISECONDS);
                    } else {
                        changed.await(1L, TimeUnit.SECONDS);
                    }
                }
            } finally {
                lock.unlock();
            }
        }

        /**
         * Until Spark itself would fire next: at once, or at the next multiple of the user's interval, which is never
         * further away than the interval, though somebody may have set the clock back by an hour.
         */
        long untilUserTriggerMs() {
            if (userIntervalMs <= 0L || passedAt == 0L) return 0L;
            long next = passedAt / userIntervalMs * userIntervalMs + userIntervalMs;
            long sincePassed = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - passedNanos);
            return Math.min(next - System.currentTimeMillis(), userIntervalMs - sincePassed);
        }

        void grant(long wait) {
            lock.lock();
            try {
                if (waiting && wait == waits) {
                    grantedWait = wait;
                    changed.signalAll();
                }
            } finally {
                lock.unlock();
            }
        }

        void wake() {
            lock.lock();
            try {
                changed.signalAll();
            } finally {
                lock.unlock();
            }
        }

        // ---- what the query's batches tell -----------------------------------------------------------------------

        /** On the stream's thread, a batch just over: its progress is there already. */
        void batchEnded() {
            try {
                Object tracker = Reach.get(microBatch, "watermarkTracker");
                if (tracker != null) {
                    nextWatermarkMs = ((Long) Reach.call(tracker, "currentWatermark")).longValue();
                }
                Object progress = Reach.call(execution, "lastProgress");
                String text = progress == null ? "" : (String) Reach.call(progress, "json");
                if (text.equals(lastSeenProgress)) return;
                lastSeenProgress = text;
                ObjectNode batch = owner.json.createObjectNode();
                batch.put("ended_ms", System.currentTimeMillis());
                if (passedCpuNanos >= 0L) batch.put("driver_cpu_ns", cpuNanosHere() - passedCpuNanos);
                JsonNode parsed = owner.json.readTree(text);
                batch.set("progress", parsed);
                if (parsed.hasNonNull("batchId")) lastBatch = at(parsed, "batchId").asLong();
                JsonNode durations = at(parsed, "durationMs");
                if (durations != null && durations.has("addBatch")) {
                    PlanReader.executed(Reach.call(Reach.call(execution, "lastExecution"), "executedPlan"), batch);
                }
                synchronized (unread) {
                    if (unread.size() >= MAX_UNREAD_BATCHES) unread.remove(0);
                    unread.add(batch);
                }
            } catch (Throwable t) {
                LOG.warn("Slackwater: could not read the progress of query " + label(), t);
            }
        }

        /** Of a batch that has begun; on the thread of Spark's events. */
        TaskTime taskTime(long batch) {
            synchronized (worked) {
                Long id = Long.valueOf(batch);
                TaskTime found = (TaskTime) worked.get(id);
                if (found != null) return found;
                if (worked.size() >= MAX_UNREAD_BATCHES) worked.remove(worked.keySet().iterator().next());
                found = new TaskTime();
                worked.put(id, found);
                return found;
            }
        }

        /** Of batches that are over and whose jobs have all ended: Spark tells a little later than it does. */
        void reportTaskTimes(ArrayNode out) {
            synchronized (worked) {
                Iterator it = worked.entrySet().iterator();
                while (it.hasNext()) {
                    Map.Entry entry = (Map.Entry) it.next();
                    TaskTime time = (TaskTime) entry.getValue();
                    long batch = ((Long) entry.getKey()).longValue();
                    if (batch > lastBatch || !time.over()) continue;
                    it.remove();
                    ObjectNode one = out.addObject();
                    one.put("batch", batch);
                    one.put("cpu_ns", time.cpuNanos);
                    one.put("run_ms", time.runMs);
                }
            }
        }

        /** Also one that is about to start; one whose thread could never be started is known to Spark no more. */
        boolean alive() {
            if (thread.isAlive()) return true;
            return thread.getState() == Thread.State.NEW && owner.queriesInProgress.containsValue(execution);
        }

        /** Somebody is in processAllAvailable(). */
        boolean awaited() throws Exception {
            ReentrantLock progressLock = (ReentrantLock) Reach.call(execution, "awaitProgressLock");
            if (!progressLock.tryLock()) return false;
            try {
                return progressLock.hasWaiters((Condition) Reach.call(execution, "awaitProgressLockCondition"));
            } finally {
                progressLock.unlock();
            }
        }

        ObjectNode report(boolean alive, boolean describe) {
            ObjectNode out = owner.json.createObjectNode();
            out.put("run", runId);
            out.put("alive", alive);
            lock.lock();
            try {
                out.put("waiting", waiting);
                out.put("wait", waits);
                out.put("since_ms", waiting ? since : passedAt);
                out.put("next_watermark_ms", nextWatermarkMs);
            } finally {
                lock.unlock();
            }
            try {
                settle();
                out.put("tasks", owner.taskOrder.runningTasks(pool, queryId));
                out.put("awaited", userIntervalMs >= 0L && awaited());
                if (describe) describe(out.putObject("about"));
                String why = alive ? null : error();
                if (why != null) out.put("error", why.substring(0, Math.min(why.length(), MAX_ERROR_LENGTH)));
            } catch (Throwable t) {
                LOG.warn("Slackwater: could not describe query " + label(), t);
            }
            ArrayNode batches = out.putArray("batches");
            synchronized (unread) {
                for (int i = 0; i < unread.size(); i++) batches.add((ObjectNode) unread.get(i));
                unread.clear();
            }
            reportTaskTimes(out.putArray("worked"));
            return out;
        }

        void describe(ObjectNode out) throws Exception {
            out.put("id", queryId);
            out.put("name", name);
            out.put("pool", pool);
            out.put("gated", userIntervalMs >= 0L);
            out.put("trigger", String.valueOf(trigger));
            out.put("user_interval_ms", userIntervalMs);
            out.put("output_mode", String.valueOf(Reach.call(execution, "outputMode")));
            out.put("checkpoint", String.valueOf(Reach.call(execution, "resolvedCheckpointRoot")));
            ArrayNode plan = out.putArray("plan");
            Object conf = Reach.call(Reach.call(execution, "sparkSession"), "conf");
            out.put("watermark_policy", PlanReader.conf(conf, "spark.sql.streaming.multipleWatermarkPolicy", "min"));
            out.put("no_data_batches", PlanReader.conf(conf, "spark.sql.streaming.noDataMicroBatches.enabled", "true"));
            PlanReader.analyzed(Reach.call(execution, "analyzedPlan"), plan);
        }

        /** Why it failed; null where it did not. */
        String error() throws Exception {
            Object why = Reach.call(execution, "exception");
            return Reach.bool(why, "isDefined") ? String.valueOf(Reach.call(why, "get")) : null;
        }

        /** Kafka's error names no topic, and Spark's neither. */
        void tellUnknownTopic() {
            try {
                String why = error();
                if (why == null || why.indexOf("UnknownTopicOrPartition") < 0) return;
                owner.note("query " + label() + " ended because its broker has no such topic: it reads "
                    + Reach.call(Reach.call(execution, "sources"), "mkString", ", ")
                    + ". Make the topic or correct its name, and start the query again");
            } catch (Throwable t) {
                LOG.warn("Slackwater: could not look why query " + label() + " ended", t);
            }
        }

        String label() {
            return name == null ? queryId : "'" + name + "'";
        }
    }

    // =============================================================================================================

    /** What the tasks of one batch took: written by the thread of Spark's events, read when the batch is over. */
    public static final class TaskTime {
        private int jobs = 0; // that have begun and not ended
        private boolean begun = false;
        volatile long cpuNanos = 0L;
        volatile long runMs = 0L;

        synchronized void jobBegins() {
            begun = true;
            jobs++;
        }

        synchronized void jobEnds() {
            jobs--;
        }

        synchronized boolean over() {
            return begun && jobs == 0;
        }
    }

    /** Spark tells of tasks by their stages: which batch of which query those belong to, its jobs say. */
    public static final class TaskTimes extends SparkListener {
        private final SlackwaterGate owner;
        private final Map ofJobs = new HashMap(); // job id -> TaskTime; all on one thread
        private final Map ofStages = new HashMap(); // stage id -> TaskTime
        private final Map stagesOfJobs = new HashMap(); // job id -> List of stage ids

        TaskTimes(SlackwaterGate owner) {
            this.owner = owner;
        }

        public void onJobStart(SparkListenerJobStart job) {
            try {
                Properties properties = job.properties();
                if (properties == null) return;
                String batch = properties.getProperty(BATCH_ID_KEY);
                Gate gate = owner.gateOf(properties.getProperty(QUERY_ID_KEY));
                if (gate == null || batch == null) return;
                TaskTime time = gate.taskTime(Long.parseLong(batch));
                time.jobBegins();
                List stages = new ArrayList();
                Object ids = Reach.call(Reach.call(job, "stageIds"), "iterator");
                while (Reach.bool(ids, "hasNext")) stages.add(Reach.call(ids, "next"));
                for (int i = 0; i < stages.size(); i++) ofStages.put(stages.get(i), time);
                stagesOfJobs.put(Integer.valueOf(job.jobId()), stages);
                ofJobs.put(Integer.valueOf(job.jobId()), time);
            } catch (Throwable t) {
                LOG.debug("Slackwater: could not tell which batch a job belongs to", t);
            }
        }

        public void onTaskEnd(SparkListenerTaskEnd task) {
            TaskTime time = (TaskTime) ofStages.get(Integer.valueOf(task.stageId()));
            if (time == null || task.taskMetrics() == null) return;
            time.cpuNanos += task.taskMetrics().executorCpuTime() + task.taskMetrics().executorDeserializeCpuTime();
            time.runMs += task.taskMetrics().executorRunTime() + task.taskMetrics().executorDeserializeTime();
        }

        public void onJobEnd(SparkListenerJobEnd job) {
            Integer id = Integer.valueOf(job.jobId());
            List stages = (List) stagesOfJobs.remove(id);
            TaskTime time = (TaskTime) ofJobs.remove(id);
            for (int i = 0; stages != null && i < stages.size(); i++) ofStages.remove(stages.get(i));
            if (time != null) time.jobEnds();
        }
    }

    // =============================================================================================================

    /**
     * CPU time of the JVM's threads that collect garbage and compile, which its own beans don't tell: how long they
     * took includes how long they waited for a core. Linux has it for each thread; elsewhere it is not told.
     */
    public static final class VmThreads {
        static final Integer COLLECTS = Integer.valueOf(0);
        static final Integer COMPILES = Integer.valueOf(1);
        static final Integer OTHER = Integer.valueOf(2);
        static final long READ_EVERY_NS = 2000000000L;

        private final File threads;
        private final long[] ofTheGone = new long[2];
        private Map kinds = new HashMap(); // thread id -> kind
        private Map cpuNanos = new HashMap(); // thread id -> CPU time; of those that collect or compile
        private long readAt = System.nanoTime() - READ_EVERY_NS;
        private boolean told = true;

        VmThreads() {
            this.threads = new File("/proc/self/task");
        }

        /** Now and then look again; false where nothing tells. */
        boolean read() {
            if (!told || System.nanoTime() - readAt < READ_EVERY_NS) return told;
            readAt = System.nanoTime();
            try {
                String[] ids = threads.list();
                if (ids == null) throw new IllegalStateException("no " + threads);
                Map kindsNow = new HashMap();
                Map cpuNow = new HashMap();
                for (int i = 0; i < ids.length; i++) {
                    Integer kind = (Integer) kinds.get(ids[i]);
                    if (kind == null) kind = kindOf(content(ids[i], "comm"));
                    kindsNow.put(ids[i], kind);
                    if (kind.equals(OTHER)) continue;
                    String times = content(ids[i], "schedstat"); // nanoseconds on a core, waiting for one, turns
                    if (times != null) cpuNow.put(ids[i], Long.valueOf(times.split(" ")[0]));
                }
                Iterator it = cpuNanos.keySet().iterator();
                while (it.hasNext()) { // compilers come and go
                    Object id = it.next();
                    if (!cpuNow.containsKey(id)) {
                        ofTheGone[((Integer) kinds.get(id)).intValue()] += ((Long) cpuNanos.get(id)).longValue();
                    }
                }
                kinds = kindsNow;
                cpuNanos = cpuNow;
                told = !cpuNow.isEmpty();
            } catch (Throwable t) {
                told = false;
                LOG.debug("Slackwater: what collecting and compiling take is not told here", t);
            }
            return told;
        }

        long cpuNanos(Integer kind) {
            long sum = ofTheGone[kind.intValue()];
            Iterator it = cpuNanos.keySet().iterator();
            while (it.hasNext()) {
                Object id = it.next();
                if (kinds.get(id).equals(kind)) sum += ((Long) cpuNanos.get(id)).longValue();
            }
            return sum;
        }

        /** By their names in HotSpot: G1, Parallel and Serial, ZGC, Shenandoah; C1 and C2. */
        static Integer kindOf(String name) {
            if (name == null) return OTHER;
            if (name.startsWith("C1 Compiler") || name.startsWith("C2 Compiler")) return COMPILES;
            boolean collects = name.startsWith("GC Thread") || name.startsWith("G1 ") || name.startsWith("ZWorker")
                || name.startsWith("ZDriver") || name.startsWith("XWorker") || name.startsWith("Shenandoah");
            return collects ? COLLECTS : OTHER;
        }

        /** Null for a thread that has ended meanwhile. */
        String content(String id, String file) {
            try {
                byte[] bytes = Files.readAllBytes(Paths.get(threads.getPath(), new String[] {id, file}));
                return new String(bytes, StandardCharsets.US_ASCII).trim();
            } catch (java.io.IOException e) {
                return null;
            }
        }
    }

    // =============================================================================================================

    /** Each free core goes to the task of the most urgent query; what is not gated ages to the front. */
    public static final class TaskOrder implements SchedulingAlgorithm {
        // Ordinary jobs that have waited this long without a running task go before every streaming query.
        static final long ORDINARY_PATIENCE_MS = 500L;

        private final TaskSchedulerImpl scheduler;
        private final Pool root;
        private final SchedulingAlgorithm original;
        private final boolean fair;
        private final Map hungrySince = new HashMap(); // ordinary pool or task set -> when it began to wait
        private volatile Map ranks = null; // null: Spark's own order

        TaskOrder(SparkContext context, List notes) {
            TaskSchedulerImpl found = null;
            Pool pool = null;
            SchedulingAlgorithm before = null;
            try {
                found = (TaskSchedulerImpl) Reach.call(context, "taskScheduler");
                pool = found.rootPool();
                before = sparksOwn(Reach.get(pool, "taskSetSchedulingAlgorithm"));
                Reach.set(pool, "taskSetSchedulingAlgorithm", this);
            } catch (Throwable t) {
                pool = null;
                notes.add("tasks of running batches keep Spark's own order: " + t);
            }
            this.scheduler = found;
            this.root = pool;
            this.original = before;
            this.fair = found != null && "FAIR".equals(String.valueOf(found.schedulingMode()));
            if (!fair) {
                notes.add("this context schedules tasks FIFO: task sets are ordered by query, but streams and ordinary "
                    + "jobs share one pool; set spark.scheduler.mode=FAIR before the session starts for pools of "
                    + "their own");
            }
        }

        /** Under the order of an attachment that was never taken away lies the one that it replaced. */
        static SchedulingAlgorithm sparksOwn(Object order) throws Exception {
            while (Reach.has(order, "original")) order = Reach.get(order, "original");
            return (SchedulingAlgorithm) order;
        }

        public boolean comparator(Schedulable a, Schedulable b) {
            Map now = ranks; // swapped only under the scheduler's monitor, which a sort holds throughout
            try {
                if (now != null) {
                    double ra = rank(now, a);
                    double rb = rank(now, b);
                    if (ra != rb) return ra < rb;
                    if (!fair) return original.comparator(a, b);
                    return a.name().compareTo(b.name()) < 0;
                }
            } catch (Throwable t) {
                return a.name().compareTo(b.name()) < 0;
            }
            return original.comparator(a, b);
        }

        /** Less is sooner. Ordinary work stands behind the streams until it has aged (see refresh). */
        static double rank(Map ranks, Schedulable item) {
            Object rank = ranks.get(key(item));
            return rank == null ? Double.MAX_VALUE : ((Double) rank).doubleValue();
        }

        static String key(Schedulable item) {
            if (item instanceof TaskSetManager) {
                Properties properties = ((TaskSetManager) item).taskSet().properties();
                String query = properties == null ? null : properties.getProperty(QUERY_ID_KEY);
                return query == null ? item.name() : query;
            }
            return item.name();
        }

        void use(Map fresh, Map ungated) {
            if (root == null) return;
            synchronized (scheduler) {
                if (fresh != null) letOrdinaryWorkAge(fresh, ungated);
                ranks = fresh;
            }
        }

        /** Ordinary jobs, and queries that no gate holds: nothing else would see that they get their cores. */
        void letOrdinaryWorkAge(Map fresh, Map ungated) {
            long now = TimeUnit.NANOSECONDS.toMillis(System.nanoTime());
            Map stillHungry = new HashMap();
            Iterator it = root.schedulableQueue().iterator();
            while (it.hasNext()) {
                Schedulable item = (Schedulable) it.next();
                String key = key(item);
                boolean held = fresh.containsKey(key) && !ungated.containsKey(key) && !ungated.containsValue(key);
                if (held || !wantsTasks(item)) continue;
                Object began = hungrySince.get(key);
                if (item.runningTasks() > 0 || began == null) began = Long.valueOf(now);
                stillHungry.put(key, began);
                long waited = now - ((Long) began).longValue();
                if (waited >= ORDINARY_PATIENCE_MS) fresh.put(key, Double.valueOf(-1e12 - waited));
            }
            hungrySince.clear();
            hungrySince.putAll(stillHungry);
        }

        static boolean wantsTasks(Schedulable item) {
            return item instanceof TaskSetManager || !item.schedulableQueue().isEmpty();
        }

        /** Running tasks of ordinary jobs: cores that streams do not have. */
        int ordinaryTasks() {
            if (root == null) return 0;
            int tasks = 0;
            Map now = ranks;
            Iterator it = root.schedulableQueue().iterator();
            while (it.hasNext()) {
                Schedulable item = (Schedulable) it.next();
                if (!key(item).startsWith(POOL_PREFIX) && (now == null || !now.containsKey(key(item)))) {
                    tasks += item.runningTasks();
                }
            }
            return tasks;
        }

        int runningTasks(String pool, String queryId) {
            if (root == null) return -1;
            int tasks = 0;
            Iterator it = root.schedulableQueue().iterator();
            while (it.hasNext()) {
                Schedulable item = (Schedulable) it.next();
                String key = key(item);
                if (key.equals(pool) || key.equals(queryId)) tasks += item.runningTasks();
            }
            return tasks;
        }

        /** Before its first job, or Spark warns of a pool that no file configures. */
        void addPool(String pool) {
            if (root == null || !fair) return;
            try {
                Object fifo = Reach.call(SchedulingMode$.MODULE$, "FIFO");
                synchronized (scheduler) {
                    if (root.schedulableNameToSchedulable().containsKey(pool)) return;
                    root.addSchedulable(new Pool(pool, (scala.Enumeration.Value) fifo, 0, 1));
                }
            } catch (Throwable t) {
                LOG.warn("Slackwater: could not add a pool; Spark will", t);
            }
        }

        /** Pools that are there now and were named by us. */
        List ownPools() {
            List names = new ArrayList();
            if (root == null) return names;
            Iterator it = root.schedulableNameToSchedulable().keySet().iterator();
            while (it.hasNext()) {
                String name = (String) it.next();
                if (name.startsWith(POOL_PREFIX)) names.add(name);
            }
            return names;
        }

        /** Spark never removes a pool. False: tasks are in it still. */
        boolean forget(String pool) {
            if (root == null) return true;
            synchronized (scheduler) {
                Schedulable item = (Schedulable) root.schedulableNameToSchedulable().get(pool);
                if (item == null) return true;
                if (!item.schedulableQueue().isEmpty()) return false;
                root.removeSchedulable(item);
                return true;
            }
        }

        void restore() {
            if (root == null) return;
            try {
                synchronized (scheduler) {
                    ranks = null;
                    Reach.set(root, "taskSetSchedulingAlgorithm", original);
                }
            } catch (Throwable t) {
                LOG.warn("Slackwater: could not restore Spark's own task order", t);
            }
        }
    }

    // =============================================================================================================

    /**
     * What Spark offers to tasks: on a cluster the executors that are registered and not on their way out, which come
     * and go. Spark's default parallelism is no measure of cores: users set it, and on a cluster it is 2 or more.
     */
    public static final class Executors {
        static final String REGISTERED =
            "org$apache$spark$scheduler$cluster$CoarseGrainedSchedulerBackend$$executorDataMap";

        private final SparkContext context;
        private Object backend; // null: of a kind that we do not know
        private Object registered; // Spark's own map, guarded by the backend's monitor; null in local mode
        private boolean onDemand = false;
        private int most = Integer.MAX_VALUE; // that dynamic allocation may ask for
        private long heapBytesEach = 0L;
        private long active = 0L; // as cores() found them last

        Executors(SparkContext context, List notes) {
            this.context = context;
            try {
                Object found = Reach.call(Reach.call(context, "taskScheduler"), "backend");
                if (found.getClass().getSimpleName().equals("LocalSchedulerBackend")) {
                    Reach.call(found, "totalCores");
                } else {
                    registered = Reach.call(found, REGISTERED);
                    onDemand = Reach.bool(Reach.call(context, "executorAllocationManager"), "isDefined");
                    most = context.getConf().getInt("spark.dynamicAllocation.maxExecutors", Integer.MAX_VALUE);
                    heapBytesEach = ((Integer) Reach.call(context, "executorMemory")).longValue() << 20;
                }
                backend = found;
            } catch (Throwable t) {
                registered = null;
                notes.add("the number of executors' cores is taken from Spark's default parallelism: " + t);
            }
        }

        int cores() {
            try {
                if (backend == null) return context.defaultParallelism();
                if (registered == null) return ((Integer) Reach.call(backend, "totalCores")).intValue();
                int cores = 0;
                long executors = 0L;
                synchronized (backend) {
                    Object entries = Reach.call(registered, "iterator");
                    while (Reach.bool(entries, "hasNext")) {
                        Object entry = Reach.call(entries, "next");
                        Object on = Reach.call(backend, "isExecutorActive", Reach.call(entry, "_1"));
                        if (!((Boolean) on).booleanValue()) continue;
                        cores += ((Integer) Reach.call(Reach.call(entry, "_2"), "totalCores")).intValue();
                        executors++;
                    }
                }
                active = executors;
                return cores;
            } catch (Throwable t) {
                LOG.warn("Slackwater: could not count the executors' cores", t);
                return context.defaultParallelism();
            }
        }

        /** The heaps of all executors; -1 where tasks run in this JVM. */
        long heapBytes() {
            return registered == null ? -1L : active * heapBytesEach;
        }

        /** Spark may ask for more executors, which it does while tasks wait. */
        boolean elastic() {
            return onDemand && active < most;
        }
    }

    // =============================================================================================================

    /** What plans tell: windows and watermarks before a query runs, row counts and event times after a batch. */
    public static final class PlanReader {

        static String conf(Object conf, String key, String otherwise) throws Exception {
            Method get = conf.getClass().getMethod("get", new Class[] {String.class, String.class});
            return (String) get.invoke(conf, new Object[] {key, otherwise});
        }

        static void analyzed(Object node, ArrayNode out) throws Exception {
            walkAnalyzed(node, out, -1);
        }

        static void walkAnalyzed(Object node, ArrayNode out, int parent) throws Exception {
            if (out.size() >= 500) return;
            int index = out.size();
            String op = (String) Reach.call(node, "nodeName");
            ObjectNode entry = out.addObject();
            entry.put("op", op);
            entry.put("parent", parent);
            entry.put("streaming", ((Boolean) Reach.call(node, "isStreaming")).booleanValue());
            if (op.equals("EventTimeWatermark") || op.equals("Join")) {
                entry.put("text", cut(String.valueOf(Reach.call(node, "output"))));
            }
            if (op.equals("Join")) entry.put("condition", cut(String.valueOf(Reach.call(node, "condition"))));
            ArrayNode windows = entry.putArray("windows");
            Object expressions = Reach.call(Reach.call(node, "expressions"), "iterator");
            while (Reach.bool(expressions, "hasNext")) {
                String text = String.valueOf(Reach.call(expressions, "next"));
                if (text.indexOf("precisetimestampconversion") >= 0) windows.add(cut(text));
            }
            Object children = Reach.call(Reach.call(node, "children"), "iterator");
            while (Reach.bool(children, "hasNext")) walkAnalyzed(Reach.call(children, "next"), out, index);
        }

        static void executed(Object root, ObjectNode batch) throws Exception {
            walkExecuted(root, batch, batch.putArray("inputs"), batch.putArray("operators"), 0);
        }

        static void walkExecuted(Object node, ObjectNode batch, ArrayNode inputs, ArrayNode operators, int depth)
                throws Exception {
            if (depth > MAX_PLAN_DEPTH) return;
            String op = (String) Reach.call(node, "nodeName");
            // The outermost one emits. Behind a join its watermark lags the query's.
            if (op.startsWith("StateStoreSave") && !batch.has("evicts_ms")) {
                Object evicts = Reach.get(node, "eventTimeWatermarkForEviction");
                if (Reach.bool(evicts, "isDefined")) {
                    batch.put("evicts_ms", ((Long) Reach.call(evicts, "get")).longValue());
                }
            }
            if (Reach.has(node, "eventTimeStats")) {
                Object stats = Reach.call(Reach.call(node, "eventTimeStats"), "value");
                long count = ((Long) Reach.call(stats, "count")).longValue();
                ObjectNode input = inputs.addObject();
                input.put("delay_ms", ((Long) Reach.call(node, "delayMs")).longValue());
                input.put("rows", count);
                if (count > 0L) {
                    input.put("max_ms", ((Long) Reach.call(stats, "max")).longValue());
                    input.put("min_ms", ((Long) Reach.call(stats, "min")).longValue());
                    input.put("avg_ms", ((Double) Reach.call(stats, "avg")).doubleValue());
                }
            }
            if (operators.size() < MAX_OPERATORS) {
                Object rows = Reach.call(Reach.call(node, "metrics"), "get", "numOutputRows");
                if (Reach.bool(rows, "isDefined")) {
                    ObjectNode entry = operators.addObject();
                    entry.put("op", op);
                    entry.put("rows", ((Long) Reach.call(Reach.call(rows, "get"), "value")).longValue());
                }
            }
            if (op.startsWith("AdaptiveSparkPlan")) { // a leaf to its parent; stateless queries have it since 4.1
                walkExecuted(Reach.call(node, "executedPlan"), batch, inputs, operators, depth + 1);
            } else if (op.endsWith("QueryStage")) {
                walkExecuted(Reach.call(node, "plan"), batch, inputs, operators, depth + 1);
            }
            Object children = Reach.call(Reach.call(node, "children"), "iterator");
            while (Reach.bool(children, "hasNext")) {
                walkExecuted(Reach.call(children, "next"), batch, inputs, operators, depth + 1);
            }
        }

        static String cut(String text) {
            return text.length() <= MAX_EXPRESSION_CHARS ? text : text.substring(0, MAX_EXPRESSION_CHARS);
        }
    }

    /** Spark's private fields and version-dependent classes, by name; looked up once per class. */
    public static final class Reach {
        private static final Map FIELDS = new ConcurrentHashMap();
        private static final Map METHODS = new ConcurrentHashMap();

        static Field field(Class type, String name) throws NoSuchFieldException {
            String key = type.getName() + "#" + name;
            Field known = (Field) FIELDS.get(key);
            if (known != null) return known;
            for (Class c = type; c != null; c = c.getSuperclass()) {
                Field[] declared = c.getDeclaredFields();
                for (int i = 0; i < declared.length; i++) {
                    if (declared[i].getName().equals(name)) {
                        declared[i].setAccessible(true);
                        FIELDS.put(key, declared[i]);
                        return declared[i];
                    }
                }
            }
            throw new NoSuchFieldException("this Spark has no field " + name + " in " + type.getName());
        }

        static boolean has(Object target, String name) {
            try {
                field(target.getClass(), name);
                return true;
            } catch (NoSuchFieldException e) {
                return false;
            }
        }

        static Object get(Object target, String name) throws Exception {
            return field(target.getClass(), name).get(target);
        }

        static void set(Object target, String name, Object value) throws Exception {
            field(target.getClass(), name).set(target, value);
        }

        static Method method(Class type, String name, int parameters) throws NoSuchMethodException {
            String key = type.getName() + "#" + name + "/" + parameters;
            Method known = (Method) METHODS.get(key);
            if (known != null) return known;
            Method[] all = type.getMethods();
            for (int i = 0; i < all.length; i++) {
                if (all[i].getName().equals(name) && all[i].getParameterTypes().length == parameters) {
                    all[i].setAccessible(true);
                    METHODS.put(key, all[i]);
                    return all[i];
                }
            }
            throw new NoSuchMethodException("this Spark has no method " + name + " in " + type.getName());
        }

        static Object call(Object target, String name) throws Exception {
            return method(target.getClass(), name, 0).invoke(target, new Object[0]);
        }

        static Object call(Object target, String name, Object argument) throws Exception {
            return method(target.getClass(), name, 1).invoke(target, new Object[] {argument});
        }

        static void callWith(Object target, String name, Object argument) throws Exception {
            method(target.getClass(), name, 1).invoke(target, new Object[] {argument});
        }

        static boolean bool(Object target, String name) throws Exception {
            return ((Boolean) call(target, name)).booleanValue();
        }
    }
}
