// Command unreliable is the operator of the Rust program `unreliable`, on controller-runtime: a Deployment for each
// website of a namespace, with leader election unless NO_ELECTION is set. It says on standard output when runs begin and end.
//
//	unreliable NAME NAMESPACE      with KUBECONFIG in the environment
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "web.example.dev/domain"

var websites = schema.GroupVersionKind{Group: "web.example.dev", Version: "v1", Kind: "Website"}

func main() {
	ctrl.SetLogger(funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{}))
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(_, namespace string) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.ContentType = "application/json"
	config.QPS = -1
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	manager, err := retry(func() (ctrl.Manager, error) {
		return ctrl.NewManager(config, ctrl.Options{
			Scheme:                        scheme,
			LeaderElection:                os.Getenv("NO_ELECTION") == "",
			LeaderElectionID:              "unreliable",
			LeaderElectionNamespace:       namespace,
			LeaderElectionReleaseOnCancel: true,
			Metrics:                       metricsserver.Options{BindAddress: "0"},
			Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		})
	})
	if err != nil {
		return err
	}
	sites := &unstructured.Unstructured{}
	sites.SetGroupVersionKind(websites)
	builder := ctrl.NewControllerManagedBy(manager).Named("websites").For(sites).Owns(&appsv1.Deployment{})
	_, err = retry(func() (struct{}, error) {
		return struct{}{}, builder.WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
			Complete(&reconciler{manager.GetClient(), scheme})
	})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

// retry asks again as a kubelet would restart the program: discovery may fail at the start.
func retry[T any](ask func() (T, error)) (T, error) {
	for attempt := 0; ; attempt++ {
		got, err := ask()
		if err == nil || attempt == 30 {
			return got, err
		}
		fmt.Fprintln(os.Stderr, err)
		time.Sleep(500 * time.Millisecond)
	}
}

type reconciler struct {
	client.Client
	scheme *runtime.Scheme
}

var next atomic.Int64

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	id := next.Add(1)
	fmt.Printf("begin %d %d %s\n", id, time.Now().UnixMicro(), request)
	defer func() { fmt.Printf("end %d %d -\n", id, time.Now().UnixMicro()) }()
	site := &unstructured.Unstructured{}
	site.SetGroupVersionKind(websites)
	if err := r.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if site.GetDeletionTimestamp() != nil {
		if controllerutil.RemoveFinalizer(site, finalizer) {
			return ctrl.Result{}, ignoreGone(r.Update(ctx, site))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(site, finalizer) {
		if err := r.Update(ctx, site); err != nil {
			return ctrl.Result{}, err
		}
	}
	wanted, _, err := unstructured.NestedInt64(site.Object, "spec", "replicas")
	if err != nil {
		return ctrl.Result{}, err
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.GetNamespace(), Name: site.GetName()}}
	_, err = controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		replicas, labels := int32(wanted), map[string]string{"site": site.GetName()}
		deployment.Spec.Replicas = &replicas
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		if len(deployment.Spec.Template.Spec.Containers) == 0 {
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "registry.example.dev/web:1"}}
		}
		return controllerutil.SetControllerReference(site, deployment, r.scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	status := map[string]any{
		"replicas":      int64(deployment.Status.Replicas),
		"readyReplicas": int64(deployment.Status.ReadyReplicas),
	}
	before, _, _ := unstructured.NestedMap(site.Object, "status")
	if before != nil && before["replicas"] == status["replicas"] && before["readyReplicas"] == status["readyReplicas"] {
		return ctrl.Result{}, nil
	}
	if err := unstructured.SetNestedMap(site.Object, status, "status"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Update(ctx, site)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
