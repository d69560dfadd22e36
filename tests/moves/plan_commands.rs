//! Operators' commands about plans, and the answers.

use symphony_tests::{Shape, emulated_model, tell};

#[test]
fn a_plan_waits_for_approval_is_shown_and_dropped_and_mistakes_are_named() {
    tell("plan-words", &Shape::emulated(&["left", "right"]).with("scheduler.epochs.mode=off"), |cluster| {
        let _ = cluster.cli(&emulated_model("m", "left")).ended_with(0);
        cluster.cli(&["plan", "show"]).ended_with(2).complains(&["no plan yet"]);
        cluster.cli(&["plan", "move", "--model", "nobody", "--to", "right"]).ended_with(2).complains(&["nobody"]);
        cluster.cli(&["plan", "move", "--model", "m", "--to", "up"]).ended_with(2).complains(&["up", "left", "right"]);
        cluster.cli(&["plan", "approve", "7"]).ended_with(2).complains(&["no plan 7"]);

        let _ = cluster.cli(&["plan", "move", "--model", "m", "--to", "right", "--propose"]).ended_with(0);
        let epochs = cluster.cli(&["get", "epochs", "-o", "json"]).ended_with(0).json();
        let plan = epochs[0]["plans"][0].clone();
        assert_eq!(plan["status"], "proposed");
        let id = plan["id"].to_string();
        let stale = cluster.cli(&["get", "epochs", "--stale", "-o", "json"]).ended_with(0).json();
        assert!(stale[0]["plans"].is_array(), "a replica may be behind, and knows of plans: {stale}");
        let shown = cluster.cli(&["plan", "show", &id, "-o", "json"]).ended_with(0).json();
        assert_eq!(
            (&shown["moves"][0]["what"], &shown["moves"][0]["progress"]),
            (&"model m".into(), &"waiting".into())
        );
        let diff = cluster.cli(&["plan", "diff", &id, "-o", "json"]).ended_with(0).json();
        let changes = |name: &str| {
            let all = diff["subclusters"].as_array().unwrap();
            all.iter().find(|change| change["subcluster"] == name).unwrap().clone()
        };
        assert_eq!(changes("left")["goes"][0], "model m");
        assert_eq!(changes("right")["comes"][0], "model m");

        let _ = cluster.cli(&["plan", "refuse", &id]).ended_with(0);
        cluster.cli(&["plan", "approve", &id]).ended_with(2).complains(&["waits for approval"]);
        let shown = cluster.cli(&["plan", "show", "-o", "json"]).ended_with(0).json();
        assert_eq!((&shown["status"], &shown["dropped"]), (&"dropped".into(), &"refused by operator/admin".into()));

        // The next one that waits is ended by another one.
        for _ in 0..2 {
            let _ = cluster.cli(&["plan", "move", "--model", "m", "--to", "right", "--propose"]).ended_with(0);
        }
        let epochs = cluster.cli(&["get", "epochs", "-o", "json"]).ended_with(0).json();
        let plans = epochs[0]["plans"].as_array().unwrap();
        assert_eq!(plans[1]["dropped"], format!("plan {} took its place", plans[0]["id"]), "{plans:?}");
        let table = cluster.cli(&["get", "epochs"]).ended_with(0);
        assert!(table.out.contains("dropped: refused by operator/admin"), "{table:?}");
        let events = cluster.cli(&["get", "events"]).ended_with(0);
        assert!(events.out.contains("refuse plan"), "{events:?}");

        // A command that does not wait says where to look, and succeeds.
        let output = cluster.cli(&["plan", "move", "--model", "m", "--to", "right", "--wait-s", "0"]).ended_with(0);
        let id = output.out.split_whitespace().nth(1).unwrap().to_owned();
        assert_eq!(output.out.trim(), format!("plan {id} runs; see `symphony plan show {id}`"));
        cluster
            .wait_for_view("m to be there", |view| {
                let (_, model) = view.model_named("m")?;
                (view.subclusters[&model.subcluster].name == "right").then_some(())
            })
            .unwrap();
    });
}
