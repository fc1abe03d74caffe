//! Kinds that are cached as bytes: index values are read without decoding the rest.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::{
    Informer, ObjectKey,
    informer::Watched,
    list_watch::{ItemForm, RawObject},
    store::Indexer,
};

/// A parcel whose serde attributes set names and defaults.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "post.example.dev", version = "v1", kind = "Parcel", namespaced)]
#[informer(compact)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ParcelSpec {
    #[informer(index)]
    sent_from: String,
    #[informer(index)]
    #[serde(rename = "dest", alias = "to")]
    destination: Option<String>,
    #[informer(index = "by_stop")]
    #[serde(default = "depot")]
    stops: Vec<String>,
    grams: u32,
}

fn depot() -> Vec<String> {
    vec!["depot".to_owned()]
}

/// A letter, whose missing fields come from the struct's default.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "post.example.dev", version = "v1", kind = "Letter")]
#[informer(compact)]
#[serde(default)]
struct LetterSpec {
    #[informer(index)]
    class: u8,
    pages: u32,
}

impl Default for LetterSpec {
    fn default() -> Self {
        Self { class: 2, pages: 1 }
    }
}

/// A card, which serde decodes as something else.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "post.example.dev", version = "v1", kind = "Card")]
#[informer(compact)]
#[serde(from = "u8", into = "u8")]
struct CardSpec {
    #[informer(index)]
    number: u8,
}

impl From<u8> for CardSpec {
    fn from(number: u8) -> Self {
        Self { number }
    }
}

impl From<CardSpec> for u8 {
    fn from(card: CardSpec) -> Self {
        card.number
    }
}

/// A stamp, whose fields are those of the object.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "post.example.dev", version = "v1", kind = "Stamp", no_spec)]
#[informer(compact)]
#[serde(rename_all = "camelCase")]
struct StampFields {
    #[informer(index)]
    shown_on: String,
}

fn cache<W: Watched<DynamicType = ()>>(objects: &[&str]) -> W::Lister {
    let indexer = Indexer::with_indexes(W::indexes()).expect("look-ups have names of their own");
    for object in objects {
        indexer.upsert_raw(RawObject::new(*object).expect("it has a name"));
    }
    indexer.lister().into()
}

// M2
#[test]
fn look_ups_find_what_serde_reads() {
    let parcels: ParcelLister = cache::<Parcel>(&[
        r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"sentFrom":"here","to":"there","grams":1}}"#,
        r#"{"metadata":{"name":"b","namespace":"n"},"spec":{"sentFrom":"here","stops":["x","y"],"grams":2}}"#,
    ]);
    assert_eq!((parcels.by_sent_from("here").len(), parcels.by_destination("there").len()), (2, 1));
    assert_eq!(parcels.by_stop("depot")[0].spec.grams, 1);
    assert_eq!(parcels.namespace("n").by_stop("y")[0].spec.grams, 2);

    let letters: LetterLister = cache::<Letter>(&[r#"{"metadata":{"name":"a"},"spec":{"pages":3}}"#]);
    assert_eq!(letters.by_class(2)[0].spec.pages, 3);
    let cards: CardLister = cache::<Card>(&[r#"{"metadata":{"name":"a"},"spec":7}"#]);
    assert_eq!(cards.by_number(7).len(), 1);
    let stamps: StampLister = cache::<Stamp>(&[r#"{"metadata":{"name":"a"},"shownOn":"letters"}"#]);
    assert_eq!(stamps.by_shown_on("letters").len(), 1);
}

// M2
#[test]
fn an_index_decodes_no_more_than_its_fields() {
    let parcels: ParcelLister = cache::<Parcel>(&[
        r#"{"metadata":{"name":"a","namespace":"n"},"spec":{"sentFrom":"here","grams":"heavy"}}"#,
    ]);
    assert!(parcels.unreadable().is_empty(), "nobody has read it");
    assert!(parcels.by_sent_from("here").is_empty() && parcels.get(&ObjectKey::new("n", "a")).is_none());
    assert_eq!(parcels.unreadable()[0].error, "spec.grams: invalid type: string, expected u32");
}

#[test]
fn informers_of_the_kind_are_compact() {
    assert_eq!((Parcel::item_form(), Card::item_form()), (ItemForm::Bytes, ItemForm::Bytes));
}
