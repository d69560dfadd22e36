//! Converts frontends' transforms of inputs and outputs between messages and plain values.

use std::str::FromStr;

use symphony_types::{Finite, ImageInput, Transforms, UnknownWord};

use crate::control as pb;
use crate::view::ViewError;

/// None if there is nothing to do.
pub(crate) fn to_pb(transforms: &Transforms) -> Option<pb::Transforms> {
    if transforms.is_empty() {
        return None;
    }
    let numbers = |numbers: &[Finite]| numbers.iter().map(|number| number.get()).collect();
    let image = transforms.image.as_ref().map(|image| pb::ImageInput {
        input: image.input.clone(),
        width: image.width,
        height: image.height,
        colour: image.colour.word().to_owned(),
        layout: image.layout.word().to_owned(),
        fit: image.fit.word().to_owned(),
        crop_share: image.crop_share.get(),
        filter: image.filter.word().to_owned(),
        scale: image.scale.get(),
        mean: numbers(&image.mean),
        deviation: numbers(&image.deviation),
    });
    let labels = transforms.labels.iter();
    let labels = labels.map(|(output, labels)| pb::OutputLabels { output: output.clone(), labels: labels.clone() });
    Some(pb::Transforms { image, labels: labels.collect() })
}

/// Refuses unknown values; does not check that the transforms fit the model.
pub(crate) fn from_pb(transforms: Option<pb::Transforms>, model: &str) -> Result<Transforms, ViewError> {
    let Some(transforms) = transforms else { return Ok(Transforms::default()) };
    let refuse = |key: &'static str, reason: String| ViewError::Transforms { model: model.to_owned(), key, reason };
    let image = transforms.image.map(|image| image_from_pb(image, &refuse)).transpose()?;
    let labels = transforms.labels.into_iter().map(|labels| (labels.output, labels.labels)).collect();
    Ok(Transforms { image, labels })
}

fn image_from_pb(
    image: pb::ImageInput,
    refuse: &impl Fn(&'static str, String) -> ViewError,
) -> Result<ImageInput, ViewError> {
    let number = |key, number: f64| Finite::try_from(number).map_err(|error| refuse(key, error.to_string()));
    let numbers =
        |key, numbers: Vec<f64>| numbers.into_iter().map(|each| number(key, each)).collect::<Result<Vec<_>, _>>();
    Ok(ImageInput {
        colour: word("image.colour", &image.colour, refuse)?,
        layout: word("image.layout", &image.layout, refuse)?,
        fit: word("image.fit", &image.fit, refuse)?,
        crop_share: number("image.crop_share", image.crop_share)?,
        filter: word("image.filter", &image.filter, refuse)?,
        scale: number("image.scale", image.scale)?,
        mean: numbers("image.mean", image.mean)?,
        deviation: numbers("image.deviation", image.deviation)?,
        input: image.input,
        width: image.width,
        height: image.height,
    })
}

fn word<T: FromStr<Err = UnknownWord>>(
    key: &'static str,
    word: &str,
    refuse: &impl Fn(&'static str, String) -> ViewError,
) -> Result<T, ViewError> {
    word.parse().map_err(|error: UnknownWord| refuse(key, error.to_string()))
}

#[cfg(test)]
mod tests {
    use symphony_types::{Colour, Filter, Fit, Layout};

    use super::*;

    fn transforms() -> Transforms {
        let number = |number| Finite::try_from(number).unwrap();
        let image = ImageInput {
            input: "x".into(),
            width: 224,
            height: 112,
            colour: Colour::Bgr,
            layout: Layout::Nhwc,
            fit: Fit::Crop,
            crop_share: number(0.875),
            filter: Filter::Lanczos,
            scale: number(1.0 / 255.0),
            mean: vec![number(0.485), number(0.456), number(0.406)],
            deviation: vec![number(0.25)],
        };
        Transforms { image: Some(image), labels: [("y".to_owned(), vec!["cat".to_owned()])].into() }
    }

    #[test]
    fn they_survive_the_wire_and_unknown_words_are_refused_by_key() {
        assert_eq!(from_pb(to_pb(&transforms()), "m"), Ok(transforms()));
        assert_eq!(to_pb(&Transforms::default()), None);
        assert_eq!(from_pb(None, "m"), Ok(Transforms::default()));
        let with = |change: fn(&mut pb::ImageInput)| {
            let mut message = to_pb(&transforms()).unwrap();
            change(message.image.as_mut().unwrap());
            from_pb(Some(message), "m").unwrap_err().to_string()
        };
        let colour = with(|image| image.colour = "red".into());
        assert_eq!(colour, "model `m`: transforms.image.colour: `red`; expected one of rgb, bgr, grey");
        assert!(with(|image| image.scale = f64::NAN).contains("transforms.image.scale: NaN is not a finite number"));
        assert!(with(|image| image.mean[1] = f64::INFINITY).contains("transforms.image.mean"));
    }
}
