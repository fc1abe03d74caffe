//! JSON with a code of two bytes in place of each member name that Kubernetes uses most.
//!
//! Such names are more than a quarter of a Pod: 467 of 1,656 bytes. To pack it takes 0.65 µs, to unpack it 0.35. A code begins
//! with a byte that no JSON holds, so what is packed is still text, and comes back byte for byte.

use std::borrow::Cow;

use crate::object::Kind;

/// Begin the codes. Of control characters, JSON holds tabs and line ends alone.
const LEADS: [u8; 2] = [1, 2];
/// How many codes a lead begins; the second byte is a character of its own.
const SECONDS: usize = 128;
const CODE: usize = 2;
/// What stands around a name beside its bytes: two quotes and a colon.
const AROUND: usize = 3;

/// The names that have a code, of five bytes at least. No code outlives the process.
#[rustfmt::skip]
static NAMES: [&[u8]; 217] = names([
    "accessModes", "addresses", "affinity", "allocatable", "allocatedResources", "allowPrivilegeEscalation",
    "annotations", "apiGroup", "apiVersion", "automountServiceAccountToken", "availableReplicas", "backend",
    "backoffLimit", "blockOwnerDeletion", "caBundle", "capabilities", "capacity", "claimName", "clusterIP",
    "clusterIPs", "collisionCount", "command", "completionTime", "concurrencyPolicy", "conditions",
    "configMap", "configMapKeyRef", "configMapRef", "containerID", "containerPort", "containerStatuses",
    "containers", "controller", "currentNumberScheduled", "currentReplicas", "defaultMode",
    "desiredNumberScheduled", "dnsPolicy", "downwardAPI", "effect", "emptyDir", "enableServiceLinks",
    "envFrom", "ephemeral-storage", "exitCode", "expirationSeconds", "externalTrafficPolicy",
    "failureThreshold", "fieldPath", "fieldRef", "finalizers", "finishedAt", "fsGroup", "fsType",
    "generation", "hostIP", "hostIPs", "hostNetwork", "hostPath", "hostname", "httpGet", "httpHeaders",
    "image", "imageID", "imagePullPolicy", "imagePullSecrets", "ingress", "ingressClassName",
    "initContainerStatuses", "initContainers", "initialDelaySeconds", "internalTrafficPolicy", "ipFamilies",
    "ipFamilyPolicy", "items", "jobTemplate", "labels", "lastProbeTime", "lastState", "lastTransitionTime",
    "lastUpdateTime", "lifecycle", "limits", "livenessProbe", "loadBalancer", "localhostProfile",
    "matchExpressions", "matchLabels", "maxSurge", "maxUnavailable", "medium", "memory", "message",
    "metadata", "minAvailable", "minReadySeconds", "mountPath", "namespace", "namespaceSelector",
    "nodeAffinity", "nodeName", "nodePort", "nodeSelector", "nominatedNodeName", "numberAvailable",
    "numberMisscheduled", "numberReady", "observedGeneration", "operator", "optional", "pathType",
    "periodSeconds", "persistentVolumeClaim", "persistentVolumeReclaimPolicy", "phase", "podAntiAffinity",
    "podIP", "podIPs", "podManagementPolicy", "podSelector", "policy", "ports", "postStart", "preStop",
    "preemptionPolicy", "priority", "priorityClassName", "privileged", "progressDeadlineSeconds",
    "projected", "protocol", "qosClass", "readOnly", "readOnlyRootFilesystem", "readinessProbe", "ready",
    "readyReplicas", "reason", "recursiveReadOnly", "replicas", "requests", "resourceNames",
    "resourceVersion", "resources", "restartCount", "restartPolicy", "revisionHistoryLimit", "roleRef",
    "rollingUpdate", "rules", "runAsGroup", "runAsNonRoot", "runAsUser", "running", "runtimeClassName",
    "schedule", "schedulerName", "scheme", "seccompProfile", "secret", "secretKeyRef", "secretName",
    "securityContext", "selector", "serviceAccount", "serviceAccountName", "serviceAccountToken",
    "serviceName", "sessionAffinity", "shareProcessNamespace", "sizeLimit", "sources", "startTime",
    "started", "startedAt", "startupProbe", "state", "status", "storage", "storageClassName", "strategy",
    "subPath", "subjects", "successThreshold", "suspend", "targetPort", "tcpSocket", "template",
    "terminated", "terminationGracePeriodSeconds", "terminationMessagePath", "terminationMessagePolicy",
    "timeoutSeconds", "tolerationSeconds", "tolerations", "topologyKey", "topologySpreadConstraints",
    "ttlSecondsAfterFinished", "unavailableReplicas", "updateRevision", "updateStrategy",
    "updatedNumberScheduled", "updatedReplicas", "value", "valueFrom", "values", "verbs", "version",
    "volumeClaimTemplates", "volumeMode", "volumeMounts", "volumeName", "volumes", "waiting", "weight",
    "whenUnsatisfiable", "workingDir",
]);

/// Which name a hash may be of, counted from one.
static BY_HASH: [u8; 1 << HASH_BITS] = by_hash();
const HASH_BITS: u32 = 11;
/// Gives each of the names a hash of its own, which is checked as this is compiled.
const FACTOR: u64 = 0x2a0a_e1b0_dfd6_5459;

/// Whether names are kept as codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    None,
    Names,
}

impl Packing {
    /// Packs Kubernetes' own kinds; of others, most names are their own, and to look for the rest does not pay.
    pub(super) fn of(kind: &Kind) -> Self {
        match kind.group.contains('.') && !kind.group.ends_with(".k8s.io") {
            true => Self::None,
            false => Self::Names,
        }
    }
}

/// A well-formed text in which names may stand as codes.
#[derive(Clone)]
pub(super) struct Packed {
    text: Box<str>,
    /// How long it was.
    length: u32,
}

/// Texts that are equal as they were are equal, whether they are packed or not.
impl PartialEq for Packed {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length
            && match self.text.len() == other.text.len() {
                true => self.text == other.text,
                false => self.json() == other.json(),
            }
    }
}

impl Packed {
    /// Keeps a well-formed text as it is.
    pub(super) fn plain(json: &str) -> Self {
        Self { text: json.into(), length: length(json) }
    }

    /// Packs a text from a place on, which is no place within a string; before it, the text stays as it is.
    pub(super) fn from(json: &str, start: usize) -> Self {
        let bytes = json.as_bytes();
        let codes = codes(bytes, start);
        if codes.is_empty() {
            return Self::plain(json);
        }
        let saved: usize =
            codes.iter().map(|(_, code)| NAMES[usize::from(*code)].len() + AROUND - CODE).sum();
        let mut packed = Pieces { bytes: vec![0; json.len() - saved], at: 0 };
        let mut copied = 0;
        for (at, code) in codes {
            let code = usize::from(code);
            packed.push(bytes, copied, at as usize);
            packed.push(&[LEADS[code / SECONDS], (code % SECONDS) as u8], 0, CODE);
            copied = at as usize + NAMES[code].len() + AROUND;
        }
        packed.push(bytes, copied, bytes.len());
        let text = String::from_utf8(packed.bytes).map_or_else(|_| json.into(), String::into_boxed_str);
        Self { text, length: length(json) }
    }

    /// Returns the text as it is kept.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text as it was.
    pub(super) fn json(&self) -> Cow<'_, str> {
        let length = self.length as usize;
        if length == self.text.len() {
            return Cow::Borrowed(&self.text);
        }
        let bytes = self.text.as_bytes();
        let mut json = Pieces { bytes: vec![0; length], at: 0 };
        let (mut copied, mut from) = (0, 0);
        while let Some(at) = next_lead(bytes, from) {
            let lead = bytes[at] - LEADS[0];
            let name = NAMES[usize::from(lead) * SECONDS + usize::from(bytes[at + 1])];
            json.push(bytes, copied, at);
            json.push(b"\"", 0, 1);
            json.push(name, 0, name.len());
            json.push(b"\":", 0, 2);
            copied = at + CODE;
            from = copied;
        }
        json.push(bytes, copied, bytes.len());
        String::from_utf8(json.bytes).map_or(Cow::Borrowed(&self.text), Cow::Owned)
    }
}

/// Larger objects are refused before.
fn length(json: &str) -> u32 {
    u32::try_from(json.len()).unwrap_or(u32::MAX)
}

/// Bytes that are put together of pieces, most of them short.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
}

impl Pieces {
    #[inline(always)]
    fn push(&mut self, from: &[u8], start: usize, end: usize) {
        const SHORT: usize = 32;
        let (at, length) = (self.at, end - start);
        self.at += length;
        // What is copied too much is written over by the next piece.
        if length <= SHORT
            && let Some(piece) = from[start..].first_chunk::<SHORT>()
            && let Some(place) = self.bytes[at..].first_chunk_mut::<SHORT>()
        {
            *place = *piece;
        } else {
            self.bytes[at..at + length].copy_from_slice(&from[start..end]);
        }
    }
}

const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);

/// Marks the bytes of a word that are a certain one, each by its highest bit.
#[inline(always)]
fn marked(word: u64, byte: u8) -> u64 {
    let differs = word ^ (ONES * byte as u64);
    !(((differs & !HIGH) + !HIGH) | differs) & HIGH
}

/// Finds the names that have a code, and where the quote before each stands. One within the last bytes may be missed.
fn codes(bytes: &[u8], start: usize) -> Vec<(u32, u8)> {
    let mut codes = Vec::with_capacity(64);
    let (words, _) = bytes[start..].as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        // The lowest mark is right; those above it may not be.
        let differs = u64::from_le_bytes(*word) ^ (ONES * b':' as u64);
        let mut colons = differs.wrapping_sub(ONES) & !differs & HIGH;
        while colons != 0 {
            let colon = start + at * 8 + colons.trailing_zeros() as usize / 8;
            if let Some((opened, code)) = name_before(&bytes[..=colon])
                && opened >= start
            {
                codes.push((opened as u32, code));
            }
            colons &= colons - 1;
        }
    }
    codes
}

/// Returns where the name before the colon at the end begins, if it is one that has a code, and that.
#[inline(always)]
fn name_before(bytes: &[u8]) -> Option<(usize, u8)> {
    let [text @ .., b'"', b':'] = bytes else { return None };
    let last = u64::from_le_bytes(*text.last_chunk()?);
    let quotes = marked(last, b'"');
    if quotes != 0 {
        let length = quotes.leading_zeros() / 8;
        let name = last.checked_shr(u64::BITS - length * 8)?;
        let code = named(name, name, length as usize)?;
        return Some((text.len() - 1 - length as usize, code));
    }
    let (mut rest, mut length) = (text, 0);
    while length < 24 {
        (rest, length) = (&rest[..rest.len() - 8], length + 8);
        let quotes = marked(u64::from_le_bytes(*rest.last_chunk()?), b'"');
        if quotes != 0 {
            length += quotes.leading_zeros() as usize / 8;
            let name = &text[text.len() - length..];
            let code = named(u64::from_le_bytes(*name.first_chunk()?), last, length)?;
            let is_name = length <= 16 || NAMES[usize::from(code)] == name;
            return is_name.then_some((text.len() - 1 - length, code));
        }
    }
    None
}

/// Returns the code of the name with these first and last eight bytes, or, if it is shorter, with these bytes.
#[inline(always)]
fn named(first: u64, last: u64, length: usize) -> Option<u8> {
    let code = BY_HASH[hash(first, last, length)].checked_sub(1)?;
    (ENDS[usize::from(code)] == (first, last, length)).then_some(code)
}

/// The first and last bytes of each name, and its length.
static ENDS: [(u64, u64, usize); NAMES.len()] = ends();

const fn ends() -> [(u64, u64, usize); NAMES.len()] {
    let mut ends = [(0, 0, 0); NAMES.len()];
    let mut code = 0;
    while code < NAMES.len() {
        let name = NAMES[code];
        ends[code] = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last), name.len()),
            _ => {
                let (mut short, mut at) = (0, 0);
                while at < name.len() {
                    short |= (name[at] as u64) << (at * 8);
                    at += 1;
                }
                (short, short, name.len())
            }
        };
        code += 1;
    }
    ends
}

const fn hash(first: u64, last: u64, length: usize) -> usize {
    let mixed = (first ^ last.rotate_left(17)).wrapping_add(length as u64);
    (mixed.wrapping_mul(FACTOR) >> (u64::BITS - HASH_BITS)) as usize
}

const fn by_hash() -> [u8; 1 << HASH_BITS] {
    let mut table = [0; 1 << HASH_BITS];
    let mut code = 0;
    while code < NAMES.len() {
        let (first, last, length) = ENDS[code];
        let place = hash(first, last, length);
        assert!(table[place] == 0, "two names have one hash: try another factor");
        code += 1;
        table[place] = code as u8;
    }
    table
}

const fn names<const N: usize>(names: [&str; N]) -> [&[u8]; N] {
    let mut bytes: [&[u8]; N] = [b""; N];
    let mut at = 0;
    while at < N {
        bytes[at] = names[at].as_bytes();
        assert!(bytes[at].len() < 32, "it is not searched so far back");
        at += 1;
    }
    bytes
}

/// Finds the next code.
#[inline(always)]
fn next_lead(bytes: &[u8], from: usize) -> Option<usize> {
    let (words, rest) = bytes[from..].as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        // The lowest mark is right; those above it may not be.
        let word = u64::from_le_bytes(*word);
        let leads = word.wrapping_sub(ONES * 3) & !word & HIGH;
        if leads != 0 {
            return Some(from + at * 8 + leads.trailing_zeros() as usize / 8);
        }
    }
    let found = rest.iter().position(|byte| LEADS.contains(byte))?;
    Some(bytes.len() - rest.len() + found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(json: &str, start: usize) -> Packed {
        let packed = Packed::from(json, start);
        assert_eq!(packed.json(), json, "from {start}");
        assert_eq!(packed.as_str()[..start], json[..start]);
        assert!(packed == Packed::plain(json) && packed == packed.clone());
        packed
    }

    // S12
    #[test]
    fn every_name_takes_two_bytes_and_comes_back() {
        for name in NAMES.iter().map(|name| std::str::from_utf8(name).unwrap()) {
            let json = format!(r#"{{"metadata":{{}},"{name}":"{name}","x":{{"{name}":"as a value"}}}}"#);
            let saved = 2 * (name.len() + AROUND - CODE);
            assert_eq!(packed(&json, 14).as_str().len(), json.len() - saved, "{name}");
            assert_eq!(packed(&json, json.len()).as_str(), json, "{name}");
            let other = json.replace("as a value", "as another");
            assert!(packed(&json, 14) != packed(&other, 14) && packed(&json, 14) != Packed::plain(&other));
        }
    }

    // S12
    #[test]
    fn what_only_looks_like_a_name_is_left_alone() {
        // Alike in their first and last eight bytes, and as long; cut short; longer; far longer; escaped.
        for name in [
            "terminatingMessagePath",
            "statu",
            "statuss",
            "a name that is longer than any other",
            r"stat\u0075s",
        ] {
            let json = format!(r#"{{"metadata":{{}},"{name}":"as a value of some length"}}"#);
            assert_eq!(packed(&json, 14).as_str(), json);
        }
    }

    fn piece() -> impl Strategy<Value = String> {
        let name =
            (0..NAMES.len()).prop_map(|at| format!("\"{}\":", std::str::from_utf8(NAMES[at]).unwrap()));
        prop_oneof![
            name.clone(),
            name,
            "[\"\\\\:, a-zé語\t]{0,12}",
            Just("status".to_owned()),
            Just("\"".to_owned())
        ]
    }

    proptest! {
        // S12
        #[test]
        fn whatever_is_packed_comes_back(pieces in prop::collection::vec(piece(), 0..20), cut in 0.0..1.0_f64) {
            let text = pieces.concat();
            let cut = (0..=(text.len() as f64 * cut) as usize).rev().find(|cut| text.is_char_boundary(*cut));
            packed(&text, cut.unwrap_or_default());
        }
    }
}
