// Numbers and times in few characters.

export const NONE = "–";

export function seconds(value, sign = false) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  const mark = value < 0 && size >= 0.005 ? "−" : sign ? "+" : "";
  if (size >= 172800) return `${mark}${(size / 86400).toFixed(0)} d`;
  if (size >= 7200) return `${mark}${(size / 3600).toFixed(1)} h`;
  if (size >= 180) return `${mark}${(size / 60).toFixed(1)} min`;
  return `${mark}${size.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)} s`;
}

export function count(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(size >= 1e5 ? 0 : 1)} k`;
  return String(Math.round(value));
}

export function bytes(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = value, unit = 0;
  while (size >= 1000 && unit < units.length - 1) { size /= 1024; unit += 1; }
  return `${size.toFixed(unit === 0 || size >= 100 ? 0 : 1)} ${units[unit]}`;
}

export const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` : NONE);

export function clock(wallTs) {
  if (!Number.isFinite(wallTs)) return NONE;
  return new Date(wallTs * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
}

export const plural = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`;

export function quantile(sorted, share) {
  if (!sorted.length) return null;
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}
