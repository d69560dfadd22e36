//! `symphony top`: the present load of sub-clusters, models and GPUs, for the person on call.
//!
//! [`Sampler`] queries the cluster and its frontends, [`Screen::of`](screen::Screen::of) makes rows of two samples,
//! [`Board`](board::Board) is the state that keys change, [`draw`] puts both on a terminal. Only the first and [`live`]
//! do I/O.

#[cfg(feature = "top")]
mod board;
mod budgets;
#[cfg(feature = "top")]
mod draw;
#[cfg(feature = "top")]
mod live;
mod row;
mod screen;
mod window;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use crate::cli::{Output, TopArgs};
use crate::inspect::sample::Sampler;
use crate::inspect::table;
pub(crate) use screen::Screen;
pub(crate) use window::Window;

pub(crate) async fn run(args: &TopArgs) -> anyhow::Result<()> {
    let (over, sampler) = (Duration::from_secs(args.over_s), Sampler::new(&args.cluster, &args.public)?);
    if !args.once && args.output == Output::Table && std::io::stdout().is_terminal() {
        #[cfg(feature = "top")]
        return live::run(sampler, over).await;
        #[cfg(not(feature = "top"))]
        return Err(crate::left_out::left_out("top` without `--once", "top"));
    }
    let began = Instant::now();
    let before = sampler.take(began).await?;
    tokio::time::sleep(over).await;
    let screen = Screen::of(&before, &sampler.take(began).await?);
    match args.output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&screen.json())?),
        Output::Table => print(&screen),
    }
    Ok(())
}

fn print(screen: &Screen) {
    println!("{}", screen.headline());
    for note in &screen.notes {
        println!("{note}");
    }
    for budget in &screen.budgets {
        println!("{}", budget.line());
    }
    for shown in &screen.tables {
        let rows: Vec<_> = shown.rows.iter().map(|row| row.cells.iter().map(ToString::to_string).collect()).collect();
        println!();
        table::print(shown.header, &rows);
    }
}
