//! Recorded arrivals of others. Their common form is read by scenarios, whose entry has it.

use symphony_types::Nanos;
use symphony_workload::{RecordedArrivals, SpreadSeed, Window};

/// Short: a count that a mutation has made large must not fill memory.
const WINDOW: Window = Window { from: Nanos::from_millis(60_000), span: Some(Nanos::from_millis(10)) };

fn check(read: Result<RecordedArrivals, String>) {
    match read {
        Ok(read) => {
            assert!(read.rows.is_sorted_by_key(|row| row.at));
            assert!(read.rows.iter().all(|row| WINDOW.holds(row.at) && (row.source as usize) < read.sources.len()));
            if !read.rows.is_empty() {
                let text: String = read.csv_lines().collect();
                let again = RecordedArrivals::from_csv(&text).expect("what is written is read again");
                assert_eq!(again.rows.len(), read.rows.len());
            }
        }
        Err(error) => assert!(error.contains("expected") && error.len() < 4096, "{error}"),
    }
}

/// Azure Functions 2019.
pub fn azure_functions_2019(bytes: &[u8]) {
    let (text, spread) = (String::from_utf8_lossy(bytes), SpreadSeed::default());
    check(RecordedArrivals::from_azure_functions_2019(&text, Nanos::ZERO, spread, WINDOW).map(|read| read.0));
}

/// Azure Functions 2021.
pub fn azure_functions_2021(bytes: &[u8]) {
    check(RecordedArrivals::from_azure_functions_2021(&String::from_utf8_lossy(bytes), WINDOW));
}

/// Azure LLM inference 2023.
pub fn azure_llm(bytes: &[u8]) {
    check(RecordedArrivals::from_azure_llm(&String::from_utf8_lossy(bytes), "llm", WINDOW));
}

/// Replay logs of Nexus on Blox.
pub fn blox(bytes: &[u8]) {
    let (text, lasts) = (String::from_utf8_lossy(bytes), Nanos::from_millis(30_000));
    check(RecordedArrivals::from_blox(&text, lasts, SpreadSeed::default(), WINDOW));
}

pub(super) fn azure_functions_2019_seeds() -> Vec<Vec<u8>> {
    let text = "HashOwner,HashApp,HashFunction,Trigger,1,2,3\no,a,f,http,0,700,1\no,a,g,queue,3,9,0\n";
    vec![text.as_bytes().to_vec()]
}

pub(super) fn azure_functions_2021_seeds() -> Vec<Vec<u8>> {
    let text = "app,func,end_timestamp,duration\na,f,60.005,0.004\na,g,61.5,1.495\na,f,3,5\n";
    vec![text.as_bytes().to_vec()]
}

pub(super) fn azure_llm_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "offset_ms,context_tokens,generated_tokens\n0.0,374,44\n60001.5,396,109\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:16:46.685Z,1,2\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

pub(super) fn blox_seeds() -> Vec<Vec<u8>> {
    let text = "job_id, model, slo, rate, arrival\n<1, resnet50, 100, 200, 59.99>\n2,vgg,50.5,0.5,60\n";
    vec![text.as_bytes().to_vec()]
}
