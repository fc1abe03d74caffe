// Command families runs a controller of controller-runtime against the server of KUBECONFIG, and prints the metrics that
// it then has: name, type, labels and, of a histogram, the bounds of its buckets.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const name = "configmaps"

func main() {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		LeaderElection:          true,
		LeaderElectionID:        "families",
		LeaderElectionNamespace: "default",
		Metrics:                 metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	done := make(chan struct{}, 1)
	reconciler := reconcile.Func(func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
		if request.Name != "bad" {
			return reconcile.Result{}, nil
		}
		select {
		case done <- struct{}{}:
		default:
		}
		return reconcile.Result{}, errors.New("bad")
	})
	if err := ctrl.NewControllerManagedBy(manager).Named(name).For(&corev1.ConfigMap{}).Complete(reconciler); err != nil {
		return err
	}
	ended := make(chan error, 1)
	running, end := context.WithCancel(ctx)
	go func() { ended <- manager.Start(running) }()
	bad := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "bad"}}
	if err := manager.GetClient().Create(ctx, bad); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	select {
	case <-done:
	case err := <-ended:
		return errors.Join(err, errors.New("the manager ended"))
	case <-ctx.Done():
		return ctx.Err()
	}
	// The run that failed is counted after it has returned.
	time.Sleep(time.Second)
	err = print(os.Stdout)
	end()
	return errors.Join(err, <-ended)
}

// print writes a line a family; those of the Go runtime, which has no counterpart elsewhere, are one line.
func print(out io.Writer) error {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return err
	}
	ofGo := false
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "go_") {
			ofGo = true
			continue
		}
		fmt.Fprintln(out, line(family))
	}
	if ofGo {
		fmt.Fprintln(out, "go_*")
	}
	return nil
}

func line(family *dto.MetricFamily) string {
	var labels []string
	var bounds string
	for _, metric := range family.GetMetric() {
		for _, label := range metric.GetLabel() {
			if !slices.Contains(labels, label.GetName()) {
				labels = append(labels, label.GetName())
			}
		}
		if bounds == "" {
			for _, bucket := range metric.GetHistogram().GetBucket() {
				bounds += " " + strconv.FormatFloat(bucket.GetUpperBound(), 'g', 12, 64)
			}
		}
	}
	slices.Sort(labels)
	shape := strings.ToLower(family.GetType().String())
	return fmt.Sprintf("%s %s {%s}%s", family.GetName(), shape, strings.Join(labels, ","), bounds)
}
