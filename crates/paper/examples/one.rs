//! One.
use symphony_paper::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let tell = |s: Step<'_>| eprintln!("{}", s.what);
    let lab = Lab::new(if a.len() > 3 { Size::Quick } else { Size::Full }, Some(3), &tell);
    let experiment = find(&a[1]).unwrap();
    let outcome = Outcome { experiment, report: (experiment.run)(&lab).unwrap() };
    write_report(std::path::Path::new(&a[2]), &outcome).unwrap();
}
