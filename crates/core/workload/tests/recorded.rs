//! What goes into the CSV of arrivals comes out of it, and no file brings a reader down.

use proptest::prelude::*;
use symphony_types::Nanos;
use symphony_workload::{
    ModelMap, RecordedArrival, RecordedArrivals, Rest, Scenario, SpreadSeed, TRACE_S_MAX, Window, request_streams,
};

fn arrivals() -> impl Strategy<Value = RecordedArrivals> {
    let sources = prop::collection::btree_set("[a-zA-Z0-9@,._-]{1,12}", 1..5);
    let row = (
        0..(TRACE_S_MAX * 1e9 / 2.0) as u64,
        any::<prop::sample::Index>(),
        prop::option::of(1..=4096_u32),
        prop::option::of(1..1_000_000_000_000_u64),
    );
    (sources, prop::collection::vec(row, 1..50)).prop_map(|(sources, rows)| {
        let sources: Vec<String> = sources.into_iter().collect();
        let row = |(at, source, items, slo): (u64, prop::sample::Index, Option<u32>, Option<u64>)| RecordedArrival {
            at: Nanos::new(at),
            source: source.index(sources.len()) as u32,
            items,
            slo: slo.map(Nanos::new),
        };
        let mut rows: Vec<_> = rows.into_iter().map(row).collect();
        rows.sort_by_key(|row| row.at);
        RecordedArrivals { sources, rows }
    })
}

/// The arrivals with their models' names.
fn named(arrivals: &RecordedArrivals) -> Vec<(Nanos, &str, Option<u32>, Option<Nanos>)> {
    let name = |row: &RecordedArrival| arrivals.sources[row.source as usize].as_str();
    arrivals.rows.iter().map(|row| (row.at, name(row), row.items, row.slo)).collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read_again_to_the_nanosecond(arrivals in arrivals()) {
        let text: String = arrivals.csv_lines().collect();
        let read = RecordedArrivals::from_csv(&text).unwrap();
        prop_assert_eq!(named(&read), named(&arrivals));
    }

    #[test]
    fn a_scenario_plays_what_is_written_to_the_nanosecond(arrivals in arrivals()) {
        let text: String = arrivals.csv_lines().collect();
        let models: Vec<_> = arrivals
            .sources
            .iter()
            .map(|name| format!("{{ name = '{name}', alpha_ms = 1, beta_ms = 5, slo_ms = 25 }}"))
            .collect();
        let scenario = format!(
            "name = 'a'\ngpu = [{{ kind = 'x', count = 1 }}]\nmodel = [{}]\nworkload = {{ arrival = {{ trace_csv = 't' }} }}",
            models.join(", ")
        );
        // A trace of fewer nanoseconds has a higher rate than scenarios may have.
        prop_assume!(arrivals.rows.last().is_some_and(|row| row.at > Nanos::from_millis(1)));
        let scenario = Scenario::parse("a.toml", &scenario, &[], &|_| Ok(text.clone())).unwrap();
        let mut streams = request_streams(&scenario, 1, scenario.rate_rps);
        for (source, stream) in streams.iter_mut().enumerate() {
            for row in arrivals.rows.iter().filter(|row| row.source as usize == source) {
                let played = stream.next_request().unwrap();
                prop_assert_eq!(played.at.as_nanos(), row.at.get());
                prop_assert_eq!(played.items, row.items.unwrap_or(1));
                prop_assert_eq!(played.slo, row.slo.unwrap_or(Nanos::from_millis(25)));
            }
            prop_assert!(stream.next_request().is_none());
        }
    }

    #[test]
    fn cutting_and_mapping_lose_no_arrival_of_what_is_kept(arrivals in arrivals(), from_s in 0..1_000_000_u64) {
        let window = Window { from: Nanos::from_millis(from_s * 1000), span: None };
        let kept = arrivals.rows.iter().filter(|row| window.holds(row.at)).count();
        let mut cut = arrivals;
        prop_assume!(kept > 0);
        cut.cut(window, 3.0).unwrap();
        cut.map(&ModelMap { rest: Rest::Ranked(vec!["m".to_owned()]), ..ModelMap::default() }).unwrap();
        prop_assert_eq!(cut.rows.len(), kept);
        prop_assert_eq!(cut.sources, ["m"]);
        prop_assert!(cut.rows.is_sorted_by_key(|row| row.at));
    }

    #[test]
    fn any_text_is_read_or_refused(
        header in prop::sample::select(vec![
            "", "HashOwner,HashApp,HashFunction,Trigger,1,2\n", "app,func,end_timestamp,duration\n", "time_s,model\n",
            "offset_ms,context_tokens,generated_tokens\n", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "job\n",
        ]),
        rows in "([a<>0-9.,:\" \n-]{0,80}|(2023-11-16 0[0-9]:00:00,[0-9],[0-9]\n){0,4}|(a,b,c,d,([0-9]{1,5}|[0-9]{12}),[0-9]\n){0,3})",
    ) {
        let text = format!("{header}{rows}");
        let spread = SpreadSeed::default();
        let window = Window { from: Nanos::from_millis(1), span: Some(Nanos::from_millis(90_000)) };
        let read = [
            RecordedArrivals::from_azure_functions_2019(&text, Nanos::ZERO, spread, window).map(|read| read.0),
            RecordedArrivals::from_azure_functions_2021(&text, window),
            RecordedArrivals::from_azure_llm(&text, "llm", window),
            RecordedArrivals::from_blox(&text, Nanos::from_millis(30_000), spread, window),
        ];
        for read in read.into_iter().flatten() {
            prop_assert!(read.rows.is_sorted_by_key(|row| row.at));
            prop_assert!(read.rows.iter().all(|row| window.holds(row.at) && (row.source as usize) < read.sources.len()));
        }
    }
}

#[test]
fn a_scenario_may_call_what_a_trace_names_otherwise() {
    let text = "name = 'a'\ngpu = [{ kind = 'x', count = 1 }]\nmodel = [{ name = 'm', alpha_ms = 1, beta_ms = 5, slo_ms = 25 }]\n\
                workload = { arrival = { trace_csv = 't', map = { f = 'm' } } }";
    let read = |set: &[String]| Scenario::parse("a.toml", text, set, &|_| Ok("time_s,model\n1,f\n2,m\n".to_owned()));
    let scenario = read(&[]).unwrap();
    let mut streams = request_streams(&scenario, 1, scenario.rate_rps);
    assert!(streams[0].next_request().is_some() && streams[0].next_request().is_some());
    let error = read(&["workload.arrival.map.f=n".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("key `workload.arrival.map.f`: expected a model of the scenario, got `n`"), "{error}");
    let error = read(&["workload.arrival.map={ f = 'm', g = 'm' }".to_owned()]).unwrap_err().to_string();
    assert!(error.contains("expected names that the trace has, got `g`, which no row of it names"), "{error}");
}
