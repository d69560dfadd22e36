//! What a configuration is used for.

use std::fmt;

/// What a configuration is used for: which sections must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `symphony scheduler`.
    Scheduler,
    /// `symphony frontend`.
    Frontend,
    /// `symphony backend`.
    Backend,
    /// `symphony federation`.
    Federation,
    /// `symphony up`: all of them on one machine.
    Up,
}

impl Role {
    /// The subcommand.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Frontend => "frontend",
            Self::Backend => "backend",
            Self::Federation => "federation",
            Self::Up => "up",
        }
    }

    /// The sections it cannot do without, besides those that every role has.
    #[must_use]
    pub const fn sections(self) -> &'static [&'static str] {
        match self {
            Self::Scheduler => &["scheduler"],
            Self::Frontend => &["frontend"],
            Self::Backend => &["backend"],
            Self::Federation => &["federation"],
            Self::Up => &["scheduler", "frontend", "backend"],
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}
