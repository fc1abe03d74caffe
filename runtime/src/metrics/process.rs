//! What the kernel counts for this process, under the names that all Prometheus clients use. Only on Linux.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

/// The kernel shows times in this many ticks per second.
const TICKS_PER_SECOND: f64 = 100.0;
/// The unit of sizes in `/proc`.
const KILOBYTE: f64 = 1024.0;

/// Reads `/proc` at each scrape.
#[derive(Debug)]
struct ProcessCollector;

pub(super) fn register(registry: &mut Registry) {
    if cfg!(target_os = "linux") {
        registry.register_collector(Box::new(ProcessCollector));
    }
}

/// A name, a help text, and a value that may be missing.
type Number = (&'static str, &'static str, Option<f64>);

/// Reads the numbers of a process, its time of the processor first, from files of the kernel.
fn numbers(stat: &str, status: &str, limits: &str, machine: &str) -> [Number; 5] {
    // The second field is the program's name, in parentheses, and may hold anything.
    let fields: Vec<_> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    // Numbered as in proc(5), where the field after the name is the third.
    let ticks = |field: usize| Some(fields.get(field - 3)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    let used = ticks(14).zip(ticks(15)).map(|(user, system)| user + system);
    let began = number_after(machine, "btime ").zip(ticks(22)).map(|(booted, after)| booted + after);
    let bytes = |words| number_after(status, words).map(|kilobytes| kilobytes * KILOBYTE);
    [
        ("cpu_seconds", "Processor time that the process has used, in user and kernel mode", used),
        ("start_time_seconds", "When the process began, since the Unix epoch", began),
        ("resident_memory_bytes", "Memory of the process that is in RAM", bytes("VmRSS:")),
        ("virtual_memory_bytes", "Address space of the process", bytes("VmSize:")),
        ("max_fds", "Most file descriptors that may be open", number_after(limits, "Max open files")),
    ]
}

/// Reads the number after the words that a line begins with.
fn number_after(text: &str, words: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(words))?;
    rest.split_whitespace().next()?.parse().ok()
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let [used, others @ ..] = numbers(
            &read("/proc/self/stat"),
            &read("/proc/self/status"),
            &read("/proc/self/limits"),
            &read("/proc/stat"),
        );
        if let (name, help, Some(seconds)) = used {
            let name = format!("process_{name}");
            let family = encoder.encode_descriptor(&name, help, None, MetricType::Counter)?;
            ConstCounter::new(seconds).encode(family)?;
        }
        let files = fs::read_dir("/proc/self/fd").ok().map(|files| files.count().saturating_sub(1) as f64);
        for (name, help, value) in others.into_iter().chain([("open_fds", "Open file descriptors", files)]) {
            let Some(value) = value else { continue };
            let name = format!("process_{name}");
            let family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(family)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P3
    #[test]
    fn numbers_of_the_kernel_are_read_and_invalid_ones_are_left_out() {
        let stat = "7 (a) b ) S 1 7 7 0 -1 4194560 900 0 0 0 250 50 0 0 20 0 4 0 12345 1000 200 18446744073709551615";
        let status = "Name:\ta\nVmSize:\t    2048 kB\nVmRSS:\t 1024 kB\n";
        let limits = "Limit Soft Hard Units\nMax open files            1024                 524288               files\n";
        let read =
            |stat, status, limits, machine| numbers(stat, status, limits, machine).map(|number| number.2);
        assert_eq!(
            read(stat, status, limits, "cpu 1 2\nbtime 1700000000\n"),
            [3.0, 1_700_000_123.45, 1_048_576.0, 2_097_152.0, 1_024.0].map(Some)
        );
        assert_eq!(read(") ", "VmRSS: much", "Max open files unlimited", "btime"), [None; 5]);
        assert_eq!(read("", "", "", ""), [None; 5]);
    }
}
