//! The keys of an edge, as pipeline files and scenarios have them.

use crate::condition::Condition;
use crate::pipeline::EdgeSpec;
use crate::refused::Refused;

/// An edge as its author writes it.
#[derive(Clone, Copy, Debug)]
pub struct EdgeKeys<'a> {
    /// The stage whose results it carries.
    pub from: &'a str,
    /// The stage that is asked with them.
    pub to: &'a str,
    /// γ; 1 if not given.
    pub gamma: Option<f64>,
    /// `row` if each row of a result becomes a separate stage request.
    pub for_each: Option<&'a str>,
    /// Which rows lead to a stage request: the key `where`.
    pub condition: Option<&'a str>,
    /// The most stage requests that one result leads to.
    pub most: Option<u32>,
}

impl EdgeKeys<'_> {
    /// The edge that they describe.
    ///
    /// # Errors
    /// If a value is invalid; the key is that below the edge.
    pub fn checked(&self) -> Result<EdgeSpec, Refused> {
        let per_row = match self.for_each {
            None => false,
            Some("row") => true,
            Some(other) => return Err(Refused::new("for_each", "\"row\"", format!("\"{other}\""))),
        };
        let condition = self.condition.map(|text| {
            let refused = |expected| Refused::new("where", expected, format!("\"{text}\""));
            text.parse::<Condition>().map_err(refused)
        });
        let condition = condition.transpose()?;
        let (from, to, gamma) = (self.from.to_owned(), self.to.to_owned(), self.gamma.unwrap_or(1.0));
        Ok(EdgeSpec { from, to, gamma, per_row, condition, most: self.most })
    }
}

/// The refusal of a key below the edge at this place, by its whole path.
pub(super) fn of_edge(at: usize, refused: Refused) -> Refused {
    Refused { key: format!("edge.{at}.{}", refused.key), ..refused }
}
