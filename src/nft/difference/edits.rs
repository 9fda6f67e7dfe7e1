//! The longest common subsequence of two lists: what stays when one becomes the other.

/// Pairs of equal items: an index in the first list, and one in the second. Both grow.
pub(super) type Kept = Vec<(usize, usize)>;

/// Most differences for which the longest subsequence is searched. Above, nothing stays between the
/// first and the last difference.
const MAX_EDITS: usize = 1_000;

/// Returns how many items two lists have in common at their starts, and how many more at their ends.
pub(super) fn common_ends<T>(
    from: &[T],
    to: &[T],
    is_same: impl Fn(&T, &T) -> bool,
) -> (usize, usize) {
    let same = |(a, b): &(&T, &T)| is_same(a, b);
    let start = from.iter().zip(to).take_while(same).count();
    let (from, to) = (&from[start..], &to[start..]);
    (start, from.iter().rev().zip(to.iter().rev()).take_while(same).count())
}

/// Returns what two lists have in common. `None` equals nothing.
pub(super) fn kept(from: &[Option<usize>], to: &[Option<usize>]) -> Kept {
    let (start, end) = common_ends(from, to, |a, b| a.is_some() && a == b);
    let middle = common(&from[start..from.len() - end], &to[start..to.len() - end]);
    let mut kept: Kept = (0..start).map(|index| (index, index)).collect();
    kept.extend(middle.into_iter().map(|(a, b)| (a + start, b + start)));
    kept.extend((1..=end).rev().map(|back| (from.len() - back, to.len() - back)));
    kept
}

/// Myers' greedy algorithm: with each more edit, the farthest point of each diagonal.
fn common(from: &[Option<usize>], to: &[Option<usize>]) -> Kept {
    let (width, height) = (from.len(), to.len());
    if width == 0 || height == 0 {
        return Vec::new();
    }
    let most = (width + height).min(MAX_EDITS);
    // Diagonal `k` is at `most + k`.
    let mut farthest = vec![0_usize; 2 * most + 2];
    let mut history = Vec::new();
    for edits in 0..=most {
        history.push(farthest.clone());
        for place in (most - edits..=most + edits).step_by(2) {
            let goes_down = place == most - edits
                || place != most + edits && farthest[place - 1] < farthest[place + 1];
            let mut x = if goes_down { farthest[place + 1] } else { farthest[place - 1] + 1 };
            let mut y = x + most - place;
            while x < width && y < height && from[x].is_some() && from[x] == to[y] {
                (x, y) = (x + 1, y + 1);
            }
            farthest[place] = x;
            if x >= width && y >= height {
                return path(&history, most, (width, height));
            }
        }
    }
    Vec::new()
}

/// Follows the farthest points back from the end of both lists.
fn path(history: &[Vec<usize>], most: usize, (mut x, mut y): (usize, usize)) -> Kept {
    let mut kept = Kept::new();
    for (edits, farthest) in history.iter().enumerate().rev() {
        let place = most + x - y;
        let goes_down = place == most - edits
            || place != most + edits && farthest[place - 1] < farthest[place + 1];
        let (before_x, before_y) = if edits == 0 {
            (0, 0)
        } else if goes_down {
            let before = farthest[place + 1];
            (before, before + most - (place + 1))
        } else {
            let before = farthest[place - 1];
            (before, before + most - (place - 1))
        };
        // Equal items follow the edit.
        while x > before_x && y > before_y {
            (x, y) = (x - 1, y - 1);
            kept.push((x, y));
        }
        (x, y) = (before_x, before_y);
    }
    kept.reverse();
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Length of the longest common subsequence, by its definition.
    fn longest(from: &[Option<usize>], to: &[Option<usize>]) -> usize {
        let mut lengths = vec![vec![0; to.len() + 1]; from.len() + 1];
        for (i, a) in from.iter().enumerate() {
            for (j, b) in to.iter().enumerate() {
                lengths[i + 1][j + 1] = if a.is_some() && a == b {
                    lengths[i][j] + 1
                } else {
                    lengths[i][j + 1].max(lengths[i + 1][j])
                };
            }
        }
        lengths[from.len()][to.len()]
    }

    proptest! {
        #[test]
        fn as_many_items_as_possible_stay(
            from in prop::collection::vec(prop::option::weighted(0.9, 0_usize..5), 0..30),
            to in prop::collection::vec(prop::option::weighted(0.9, 0_usize..5), 0..30),
        ) {
            let kept = kept(&from, &to);
            prop_assert_eq!(kept.len(), longest(&from, &to));
            prop_assert!(kept.windows(2).all(|it| it[0].0 < it[1].0 && it[0].1 < it[1].1));
            prop_assert!(kept.iter().all(|(a, b)| from[*a].is_some() && from[*a] == to[*b]));
        }
    }

    #[test]
    fn very_different_lists_keep_their_common_ends() {
        let list = |middle: std::ops::Range<usize>| -> Vec<_> {
            [1].into_iter().chain(middle).chain([2]).map(Some).collect()
        };
        assert_eq!(kept(&list(10..1_010), &list(2_010..3_010)), [(0, 0), (1_001, 1_001)]);
    }
}
