//! One file for each table or figure: its runs, its plots, its comparisons.

pub(crate) mod nexus_fig17;
pub(crate) mod nexus_fig4;
pub(crate) mod nexus_fig5;
pub(crate) mod nexus_fig9;
pub(crate) mod symphony_fig1;
pub(crate) mod symphony_fig10;
pub(crate) mod symphony_fig11;
pub(crate) mod symphony_fig13;
pub(crate) mod symphony_fig14;
pub(crate) mod symphony_fig15;
pub(crate) mod symphony_fig4;
pub(crate) mod symphony_fig6;
pub(crate) mod symphony_fig7;
pub(crate) mod symphony_fig8;
pub(crate) mod symphony_fig9;
pub(crate) mod symphony_table2;
pub(crate) mod symphony_table4;

mod changing_rates;
mod two_models;

/// A number for a CSV file, with this many decimals.
fn cell(value: f64, decimals: usize) -> String {
    format!("{value:.decimals$}")
}
