//! Cases of the grid of the Symphony paper, Table 3.

use std::error::Error;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_xoshiro::Xoshiro256PlusPlus;

const SHAPES: [f64; 6] = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0];
const MODELS: [&str; 6] = ["DenseNet121", "InceptionV3", "ResNet50V2", "VGG16", "Xception", "BERT"];
const COUNTS: [u32; 6] = [8, 16, 24, 32, 48, 64];
const GPUS_PER_MODEL: [f64; 7] = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0];
const SLOS_MS: [f64; 5] = [20.0, 25.0, 30.0, 40.0, 50.0];

/// One case of the grid.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) model: String,
    pub(crate) count: u32,
    pub(crate) gpus: u32,
    pub(crate) slo_ms: f64,
    pub(crate) shape: f64,
    /// Exponent of the popularity; none where it is even, as in all of the grid.
    pub(crate) zipf: Option<f64>,
}

impl Case {
    /// This many cases, in random order.
    pub(crate) fn draw(cases: usize, seed: u64) -> Vec<Self> {
        let random = &mut Xoshiro256PlusPlus::seed_from_u64(seed);
        let models = column(&MODELS, cases, random);
        let counts = column(&COUNTS, cases, random);
        let per_model = column(&GPUS_PER_MODEL, cases, random);
        let slos_ms = column(&SLOS_MS, cases, random);
        let shapes = column(&SHAPES, cases, random);
        (0..cases)
            .map(|at| Self {
                model: models[at].to_owned(),
                count: counts[at],
                gpus: (per_model[at] * f64::from(counts[at])).round() as u32,
                slo_ms: slos_ms[at],
                shape: shapes[at],
                zipf: None,
            })
            .collect()
    }

    /// GPUs, models and load as in a scenario. `line` is the α and the β of the model in milliseconds; a request has
    /// from `least` to `most` items, any number equally often.
    pub(crate) fn text(&self, line: (f64, f64), (least, most): (u32, u32)) -> String {
        let Self { count, gpus, slo_ms, shape, zipf, .. } = self;
        let popularity = zipf.map_or_else(|| "\"uniform\"".to_owned(), |exponent| format!("{{ zipf = {exponent:?} }}"));
        let (alpha_ms, beta_ms) = line;
        format!(
            "[[gpu]]\nkind = \"emulated\"\ncount = {gpus}\n\
             [[model]]\nname = \"m\"\ncount = {count}\nalpha_ms = {alpha_ms:?}\nbeta_ms = {beta_ms:?}\nslo_ms = {slo_ms:?}\n\
             items = {{ uniform = [{least}, {most}] }}\n\
             [workload]\nrate_rps = 1000.0\narrival = {{ gamma = {shape:?} }}\npopularity = {popularity}\n"
        )
    }
}

/// Values for `cases` rows, each equally often and in random order: any part of the rows is a fair sample too.
fn column<T: Copy>(values: &[T], cases: usize, random: &mut Xoshiro256PlusPlus) -> Vec<T> {
    let mut column: Vec<T> = values.iter().copied().cycle().take(cases).collect();
    column.shuffle(random);
    column
}

/// The α and the β of a model, as given or from a file with columns `name,alpha_ms,beta_ms,…`.
pub(crate) fn line_of(profiles: &str, model: &str) -> Result<(f64, f64), Box<dyn Error>> {
    if let Some((alpha_ms, beta_ms)) = model.split_once('/') {
        return Ok((alpha_ms.parse()?, beta_ms.parse()?));
    }
    let row = profiles.lines().map(|row| row.split(',').collect::<Vec<_>>()).find(|row| row[0] == model);
    match row.as_deref() {
        Some([_, alpha_ms, beta_ms, ..]) => Ok((alpha_ms.parse()?, beta_ms.parse()?)),
        _ => Err(format!("no row of {model} with alpha_ms and beta_ms").into()),
    }
}
