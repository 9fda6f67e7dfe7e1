//! The size classes that a table has chains for.

use super::number::SizeClass;

/// Size classes above [`SizeClass::EXACT`]. Every table has the chains of the exact ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeClasses(u32);

impl SizeClasses {
    /// Adds a class, unless it is an exact one.
    pub fn insert(&mut self, size: SizeClass) {
        if !size.is_exact() {
            self.0 |= 1 << size.bits();
        }
    }

    /// Returns the classes, ascending.
    pub fn iter(self) -> impl Iterator<Item = SizeClass> {
        SizeClass::all().filter(move |size| self.0 >> size.bits() & 1 == 1)
    }

    /// Returns the classes of either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the classes of both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl FromIterator<SizeClass> for SizeClasses {
    fn from_iter<T: IntoIterator<Item = SizeClass>>(classes: T) -> Self {
        let mut all = Self::default();
        classes.into_iter().for_each(|size| all.insert(size));
        all
    }
}
