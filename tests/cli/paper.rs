//! `symphony paper`: what is listed can be made, and what cannot is explained. The values are checked by the crate's
//! own tests.

use std::fs;

use symphony_testkit::Workspace;
use symphony_tests::{alone, run};

#[test]
fn a_listed_name_makes_csv_svg_and_page_and_a_stranger_is_refused_with_the_list() {
    let _alone = alone();
    let workspace = Workspace::new("paper").unwrap();
    let symphony = |args: &[&str]| run(workspace.path(), &[], args).unwrap();
    let listed = symphony(&["paper", "LIST"]).ended_with(0).out;
    for name in ["symphony-table2", "symphony-table4", "symphony-fig13", "nexus-fig5", "nexus-fig9"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{name} is not in\n{listed}");
    }
    let output =
        symphony(&["paper", "symphony-table2", "--quick", "--out", "made/here", "--threads", "2"]).ended_with(0);
    assert!(output.out.contains("1 frontend"), "{}", output.out);
    let made = workspace.path().join("made/here");
    for file in ["symphony-table2.md", "symphony-table2.svg", "symphony-table2.csv"] {
        assert!(!fs::read_to_string(made.join(file)).unwrap().is_empty(), "{file}");
    }
    let _ = symphony(&["paper", "blox", "--quick", "--out", "made/blox"]).ended_with(0);
    let index = fs::read_to_string(workspace.path().join("made/blox/README.md")).unwrap();
    assert!(["blox-fig4.md", "blox-fig5.md", "blox-fig6.md"].iter().all(|page| index.contains(page)), "{index}");
    let _ = symphony(&["paper", "fig9"]).ended_with(2).complains(&["fig9", "symphony-fig9", "nexus-fig9"]);
}
