//! Upper bounds of histogram buckets.

/// Returns bounds from 10 microseconds, less than the kernel needs for one element, to 10 seconds.
pub(super) fn fine() -> Vec<f64> {
    [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
        .into_iter()
        .flat_map(|decade| [decade, 2.0 * decade, 5.0 * decade])
        .chain([10.0])
        .collect()
}

/// Returns bounds from one element to more than a transaction can hold.
pub(super) fn elements() -> Vec<f64> {
    powers(1.0, 4, 10)
}

/// Returns bounds from the bytes of one element to 16 MiB.
pub(super) fn bytes() -> Vec<f64> {
    powers(256.0, 4, 9)
}

/// Returns kube-proxy's bounds for its syncs, in seconds.
pub(super) fn sync() -> Vec<f64> {
    powers(0.001, 2, 15)
}

/// Returns kube-proxy's bounds in seconds: 0.25, 0.5, 1 to 59, 60 to 115 by 5, 120 to 300 by 30.
pub(super) fn network_programming() -> Vec<f64> {
    let whole = (1..60).chain((60..120).step_by(5)).chain((120..=300).step_by(30));
    [0.25, 0.5].into_iter().chain(whole.map(f64::from)).collect()
}

/// Returns client-go's bounds for the times of requests, in seconds.
pub(super) fn request_times() -> Vec<f64> {
    vec![0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0]
}

/// Returns client-go's bounds for the sizes of requests and answers, in bytes.
pub(super) fn request_sizes() -> Vec<f64> {
    let sizes = [64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
    sizes.into_iter().chain([1 << 20, 4 << 20, 16 << 20]).map(f64::from).collect()
}

/// Returns `count` bounds, each `factor` times the one before.
fn powers(first: f64, factor: i32, count: i32) -> Vec<f64> {
    (0..count).map(|power| first * f64::from(factor.pow(power.unsigned_abs()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bounds_ascend() {
        assert!(fine().is_sorted() && fine().first() == Some(&0.000_01));
        assert!(elements().is_sorted() && bytes().is_sorted());
        assert!(request_times().is_sorted() && request_sizes().is_sorted());
    }

    #[test]
    fn bounds_are_those_of_kube_proxy() {
        let sync = sync();
        assert_eq!((sync[0], sync.len(), sync[14]), (0.001, 15, 16.384));
        assert_eq!(network_programming().len(), 80);
        assert!(network_programming().is_sorted());
        assert_eq!(request_times().len(), 12);
        assert_eq!((request_sizes().len(), request_sizes()[10]), (11, 16_777_216.0));
    }
}
