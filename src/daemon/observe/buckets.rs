//! Upper bounds of histogram buckets.

use prometheus_client::metrics::histogram::exponential_buckets;

/// Returns bounds from 10 microseconds, less than the kernel needs for one element, to 10 seconds.
pub(super) fn fine() -> impl Iterator<Item = f64> {
    [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]
        .into_iter()
        .flat_map(|decade| [decade, 2.0 * decade, 5.0 * decade])
        .chain([10.0])
}

/// Returns bounds from one element to more than a transaction can hold.
pub(super) fn elements() -> impl Iterator<Item = f64> {
    exponential_buckets(1.0, 4.0, 10)
}

/// Returns bounds from the bytes of one element to 16 MiB.
pub(super) fn bytes() -> impl Iterator<Item = f64> {
    exponential_buckets(256.0, 4.0, 9)
}

/// Returns kube-proxy's bounds for its syncs, in seconds.
pub(super) fn sync() -> impl Iterator<Item = f64> {
    exponential_buckets(0.001, 2.0, 15)
}

/// Returns kube-proxy's bounds in seconds: 0.25, 0.5, 1 to 59, 60 to 115 by 5, 120 to 300 by 30.
pub(super) fn network_programming() -> impl Iterator<Item = f64> {
    let whole = (1..60).chain((60..120).step_by(5)).chain((120..=300).step_by(30));
    [0.25, 0.5].into_iter().chain(whole.map(f64::from))
}

/// Returns client-go's bounds for the times of requests, in seconds.
pub(super) fn request_times() -> impl Iterator<Item = f64> {
    [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0].into_iter()
}

/// Returns client-go's bounds for the sizes of requests and answers, in bytes.
pub(super) fn request_sizes() -> impl Iterator<Item = f64> {
    let sizes = [64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
    sizes.into_iter().chain([1 << 20, 4 << 20, 16 << 20]).map(f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bounds_ascend() {
        assert!(fine().is_sorted() && fine().next() == Some(0.000_01));
        assert!(elements().is_sorted() && bytes().is_sorted());
        assert!(request_times().is_sorted() && request_sizes().is_sorted());
    }

    #[test]
    fn bounds_are_those_of_kube_proxy() {
        assert_eq!((sync().next(), sync().count(), sync().last()), (Some(0.001), 15, Some(16.384)));
        assert_eq!(network_programming().count(), 80);
        assert!(network_programming().is_sorted());
        assert_eq!(request_times().count(), 12);
        assert_eq!((request_sizes().count(), request_sizes().last()), (11, Some(16_777_216.0)));
    }
}
