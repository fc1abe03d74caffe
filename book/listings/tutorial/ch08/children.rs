//! What a website consists of.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Container, PodSpec, PodTemplateSpec, SecretVolumeSource, Service,
            ServicePort, ServiceSpec, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use watchkeeper::prelude::*;

use crate::website::Website;

fn metadata(site: &Website) -> ObjectMeta {
    ObjectMeta { name: Some(site.name_any()), ..ObjectMeta::default() }
}

fn labels(site: &Website) -> BTreeMap<String, String> {
    BTreeMap::from([("site".to_owned(), site.name_any())])
}

/// The pods that serve the site.
pub fn deployment_for(site: &Website) -> Deployment {
    let tls = site.spec.tls_secret.clone().map(|name| Volume {
        name: "tls".to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(name),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    });
    let mount = tls.as_ref().map(|tls| VolumeMount {
        name: tls.name.clone(),
        mount_path: "/tls".to_owned(),
        ..VolumeMount::default()
    });
    let container = Container {
        name: "web".to_owned(),
        image: Some("nginx:1".to_owned()),
        volume_mounts: mount.map(|mount| vec![mount]),
        ..Container::default()
    };
    Deployment {
        metadata: metadata(site),
        spec: Some(DeploymentSpec {
            replicas: Some(site.spec.replicas),
            selector: LabelSelector {
                match_labels: Some(labels(site)),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels(site)),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    containers: vec![container],
                    volumes: tls.map(|tls| vec![tls]),
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// The address that leads to them.
pub fn service_for(site: &Website) -> Service {
    Service {
        metadata: metadata(site),
        spec: Some(ServiceSpec {
            selector: Some(labels(site)),
            ports: Some(vec![ServicePort { port: 80, ..ServicePort::default() }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
