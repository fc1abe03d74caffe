package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	listed     = 1_000_000_000
	aNamespace = 1_000
	// How many replicas a small gadget has.
	replicasOfSmall = 3
	aPlace          = 10
)

var groupVersion = schema.GroupVersion{Group: "bench.example.dev", Version: "v1"}

// Gadget is the custom object of gadget.rs.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GadgetSpec   `json:"spec"`
	Status            GadgetStatus `json:"status,omitempty"`
}

// GadgetSpec is what a gadget is to be.
type GadgetSpec struct {
	Place    string    `json:"place"`
	Image    string    `json:"image"`
	Replicas int64     `json:"replicas"`
	Command  []string  `json:"command"`
	Settings []Setting `json:"settings"`
	Sent     int64     `json:"sent"`
}

// Setting is a named value.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// GadgetStatus is what a gadget is.
type GadgetStatus struct {
	ReadyReplicas      int64  `json:"readyReplicas"`
	ObservedGeneration int64  `json:"observedGeneration"`
	Phase              string `json:"phase"`
	Message            string `json:"message"`
}

// GadgetList is a page of gadgets.
type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gadget `json:"items"`
}

// DeepCopyObject copies as generated code does.
func (in *Gadget) DeepCopyObject() runtime.Object {
	out := &Gadget{TypeMeta: in.TypeMeta, Spec: in.Spec, Status: in.Status}
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Command = slices.Clone(in.Spec.Command)
	out.Spec.Settings = slices.Clone(in.Spec.Settings)
	return out
}

// DeepCopyObject copies as generated code does.
func (in *GadgetList) DeepCopyObject() runtime.Object {
	out := &GadgetList{TypeMeta: in.TypeMeta, ListMeta: in.ListMeta}
	for index := range in.Items {
		out.Items = append(out.Items, *in.Items[index].DeepCopyObject().(*Gadget))
	}
	return out
}

func name(at int) string      { return fmt.Sprintf("gadget-%07d", at) }
func namespace(at int) string { return fmt.Sprintf("team-%04d", at/aNamespace) }
func place(at int) string     { return fmt.Sprintf("place-%06d", at/aPlace) }

// small makes a gadget with little in it.
func small(at int) *Gadget {
	labels := map[string]string{"app": "gadget", "shard": fmt.Sprintf("s%02d", at%100)}
	return &Gadget{
		ObjectMeta: metav1.ObjectMeta{
			Name: name(at), Namespace: namespace(at), ResourceVersion: strconv.Itoa(at + 1), Labels: maps.Clone(labels),
		},
		Spec: GadgetSpec{Place: place(at), Replicas: replicasOfSmall},
	}
}

// isLast tells whether it is the changed state of the object that changes last.
func isLast(gadget *Gadget, objects int) bool {
	version, err := strconv.ParseInt(gadget.ResourceVersion, 10, 64)
	return err == nil && version > listed && gadget.Name == name(objects-1)
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(groupVersion, &Gadget{}, &GadgetList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return scheme
}
