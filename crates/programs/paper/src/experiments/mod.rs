//! One file for each table or figure: its runs, its plots, its comparisons.

pub(crate) mod blox_fig4;
pub(crate) mod blox_fig5;
pub(crate) mod blox_fig6;
pub(crate) mod kairos_fig1;
pub(crate) mod kairos_fig10;
pub(crate) mod kairos_fig11;
pub(crate) mod kairos_fig12;
pub(crate) mod kairos_fig13;
pub(crate) mod kairos_fig14;
pub(crate) mod kairos_fig15;
pub(crate) mod kairos_fig16;
pub(crate) mod kairos_fig2;
pub(crate) mod kairos_fig3;
pub(crate) mod kairos_fig8;
pub(crate) mod kairos_fig9;
pub(crate) mod nexus_fig10;
pub(crate) mod nexus_fig11;
pub(crate) mod nexus_fig12;
pub(crate) mod nexus_fig13;
pub(crate) mod nexus_fig14;
pub(crate) mod nexus_fig15;
pub(crate) mod nexus_fig16;
pub(crate) mod nexus_fig17;
pub(crate) mod nexus_fig2;
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
mod kairos;
mod nexus_apps;
mod nexus_clipper;
mod two_models;
mod zoo_jobs;

/// A number for a CSV file, with this many decimals.
fn cell(value: f64, decimals: usize) -> String {
    format!("{value:.decimals$}")
}
