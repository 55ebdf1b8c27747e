//! How many checks passed: the plain line that every test command ends with.

use std::fmt;
use std::iter::Sum;

/// Counts of checks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Checks that passed.
    pub passed: usize,
    /// Checks that failed.
    pub failed: usize,
    /// Checks that cannot be made on this machine.
    pub skipped: usize,
}

impl Totals {
    /// One check.
    pub fn one(passed: bool) -> Self {
        Totals { passed: passed.into(), failed: (!passed).into(), skipped: 0 }
    }
}

impl Sum for Totals {
    fn sum<I: Iterator<Item = Totals>>(all: I) -> Totals {
        all.fold(Totals::default(), |a, b| Totals {
            passed: a.passed + b.passed,
            failed: a.failed + b.failed,
            skipped: a.skipped + b.skipped,
        })
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_plain() {
        let all: Totals =
            [Totals::one(true), Totals::one(false), Totals { skipped: 13, ..Totals::default() }].into_iter().sum();
        assert_eq!(all.to_string(), "1 passed, 1 failed, 13 skipped");
        assert_eq!(Totals::one(true).to_string(), "1 passed, 0 failed");
    }
}
