package slackwater.bench;

import java.time.Instant;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.streaming.api.functions.source.legacy.RichParallelSourceFunction;
import org.apache.flink.streaming.api.functions.source.legacy.SourceFunction;
import org.apache.flink.types.Row;

/**
 * The events of the Yahoo! streaming benchmark, each at its event time: what Spark's rate source and
 * workloads/ysb.py make of the same rate and seed. When it is held up it catches up; events that are due and have not
 * left are told as pendingRecords, as Kafka's source tells them.
 *
 * Compiled by Janino: no generics, no lambdas.
 */
public class PacedEvents extends RichParallelSourceFunction {
    private static final long MASK_31 = (1L << 31) - 1;
    private static final int AT_ONCE = 200;

    private final String name;
    private final long rate;
    private final long salt;
    private volatile boolean running = true;
    private volatile long next = 0;
    private volatile long createdMs = 0;

    public PacedEvents(String name, long rate, long salt) {
        this.name = name;
        this.rate = rate;
        this.salt = salt;
    }

    public void run(SourceFunction.SourceContext context) throws Exception {
        this.createdMs = System.currentTimeMillis();
        this.getRuntimeContext().getMetricGroup().gauge("pendingRecords", new Pending(this));
        System.out.println("created " + this.name + " " + this.createdMs);
        while (this.running) {
            long due = this.due();
            if (this.next >= due) {
                Thread.sleep(2);
                continue;
            }
            long until = Math.min(due, this.next + AT_ONCE);
            synchronized (context.getCheckpointLock()) {
                while (this.next < until) {
                    context.collect(this.event(this.next));
                    this.next = this.next + 1;
                }
            }
        }
    }

    public void cancel() {
        this.running = false;
    }

    /** How many events should have left by now. */
    public long due() {
        return this.createdMs == 0 ? 0 : (System.currentTimeMillis() - this.createdMs) * this.rate / 1000;
    }

    public long pending() {
        return Math.max(0, this.due() - this.next);
    }

    private Row event(long number) {
        long h = (number & MASK_31) ^ this.salt;
        h = ((h ^ (h >> 15)) * 0x2C1B3C6DL) & MASK_31;
        h = ((h ^ (h >> 12)) * 0x297A2D39L) & MASK_31;
        h = h ^ (h >> 15);
        long type = h / 1000 % 3;
        long within = (long) Math.floor((number % this.rate) * (1000.0 / this.rate) + 0.5);
        Row row = new Row(3);
        row.setField(0, Long.valueOf(h % 1000));
        row.setField(1, type == 0 ? "view" : type == 1 ? "click" : "purchase");
        row.setField(2, Instant.ofEpochMilli(this.createdMs + 1000 * (number / this.rate) + within));
        return row;
    }

    public static class Pending implements Gauge {
        private final PacedEvents source;

        public Pending(PacedEvents source) {
            this.source = source;
        }

        public Object getValue() {
            return Long.valueOf(this.source.pending());
        }
    }
}
