//! The memory of this process, from `/proc/self/status`.

/// Returns the resident memory, now and at most, in millions of bytes.
pub(super) fn resident() -> Option<[f64; 2]> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some([field(&status, "VmRSS:")?, field(&status, "VmHWM:")?])
}

/// Returns a field in kB, which are 1,024 bytes each, in millions of bytes.
fn field(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_the_kernel_writes_it() {
        let status = "VmHWM:\t   10000 kB\nVmRSS:\t    5000 kB\n";
        assert_eq!(field(status, "VmRSS:"), Some(5.12));
        assert_eq!(field(status, "VmSwap:"), None);
        let [now, most] = resident().unwrap();
        assert!(now > 0.1 && most >= now, "{now} {most}");
    }
}
