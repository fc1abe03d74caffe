package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type reconcileFunc func(context.Context, *Gadget) (reconcile.Result, error)

// startControllers starts so many controllers of gadgets that read what they reconcile from the cache.
func startControllers(ctx context.Context, job Job, count, workers int, run reconcileFunc) (ctrl.Manager, error) {
	manager, err := ctrl.NewManager(config(job), ctrl.Options{
		Scheme:         newScheme(),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper(), nil },
		Metrics:        metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return nil, err
	}
	reader := manager.GetClient()
	for number := range count {
		reconciler := reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			var gadget Gadget
			if err := reader.Get(ctx, request.NamespacedName, &gadget); err != nil {
				return reconcile.Result{}, err
			}
			return run(ctx, &gadget)
		})
		err := ctrl.NewControllerManagedBy(manager).Named(fmt.Sprintf("bench-%d", number)).For(&Gadget{}).
			WithOptions(controller.Options{MaxConcurrentReconciles: workers}).Complete(reconciler)
		if err != nil {
			return nil, err
		}
	}
	go func() { _ = manager.Start(ctx) }()
	return manager, nil
}

// paced measures delays of changes at a rate, once the first list has been worked off.
func paced(job Job, tally *tally, quiet func() bool) (Measures, error) {
	for !quiet() {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)
	requests, err := ask(job, "requests")
	if err != nil {
		return nil, err
	}
	spent := fromNow()
	order := fmt.Sprintf("pace?events=%d&rate=%d&watches=1", job.Events, job.Events/job.Seconds)
	if _, err := ask(job, order); err != nil {
		return nil, err
	}
	<-tally.all
	used := spent.used() * 1e6 / float64(job.Events)
	delays := tally.take()
	return Measures{
		"p50": quantile(delays, 0.5), "p99": quantile(delays, 0.99), "p999": quantile(delays, 0.999),
		"cpu": used, "rss": megabytes("VmRSS:"), "peak": megabytes("VmHWM:"), "requests": requests,
	}, nil
}

// quietAt tells whether all first reconciles are done.
func quietAt(first *atomic.Int64, wanted int) func() bool {
	return func() bool { return first.Load() >= int64(wanted) }
}

func latency(ctx context.Context, job Job) (Measures, error) {
	tally := newTally(job.Objects, 1)
	var first atomic.Int64
	_, err := startControllers(ctx, job, 1, job.Users, func(_ context.Context, gadget *Gadget) (reconcile.Result, error) {
		tally.hear(gadget)
		first.Add(1)
		return reconcile.Result{}, nil
	})
	if err != nil {
		return nil, err
	}
	return paced(job, tally, quietAt(&first, job.Objects))
}

func fanOut(ctx context.Context, job Job) (Measures, error) {
	tally := newTally(job.Objects, job.Users)
	var first atomic.Int64
	hear := func(gadget *Gadget) {
		tally.hear(gadget)
		first.Add(1)
	}
	quiet := quietAt(&first, job.Objects*job.Users)
	if !job.clientGo() {
		_, err := startControllers(ctx, job, job.Users, 1, func(_ context.Context, gadget *Gadget) (reconcile.Result, error) {
			hear(gadget)
			return reconcile.Result{}, nil
		})
		if err != nil {
			return nil, err
		}
		return paced(job, tally, quiet)
	}
	informer, err := newInformer(job, 0)
	if err != nil {
		return nil, err
	}
	for range job.Users {
		if _, err := informer.AddEventHandler(enqueueing(informer, hear)); err != nil {
			return nil, err
		}
	}
	go informer.Run(ctx.Done())
	return paced(job, tally, quiet)
}

// enqueueing is a handler with a queue and a worker, as a controller on client-go is made.
func enqueueing(informer toolscache.SharedIndexInformer, hear func(*Gadget)) toolscache.ResourceEventHandler {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	go func() {
		for {
			key, ended := queue.Get()
			if ended {
				return
			}
			if object, found, _ := informer.GetStore().GetByKey(key); found {
				hear(object.(*Gadget))
			}
			queue.Forget(key)
			queue.Done(key)
		}
	}()
	enqueue := func(object any) {
		if key, err := toolscache.MetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }, DeleteFunc: enqueue,
	}
}

func reconcileThroughput(ctx context.Context, job Job) (Measures, error) {
	storm := job.Question == "storm"
	var ended, begun atomic.Int64
	var began atomic.Int64
	all := make(chan struct{})
	spent := fromNow()
	_, err := startControllers(ctx, job, 1, job.Users, func(_ context.Context, gadget *Gadget) (reconcile.Result, error) {
		number := begun.Add(1)
		if number == 1 {
			began.Store(time.Now().UnixNano())
		}
		if storm {
			time.Sleep(time.Duration(number*7_919%3_000_000) * time.Microsecond)
		}
		if ended.Add(1) == int64(job.Objects) {
			close(all)
		}
		return reconcile.Result{}, nil
	})
	if err != nil {
		return nil, err
	}
	<-all
	wall := float64(time.Now().UnixNano()-began.Load()) / 1e9
	return Measures{"rate": float64(job.Objects) / wall / 1e3, "cpu": spent.used()}, nil
}

// fairness counts how often each of some keys that are always ready is served.
func fairness(ctx context.Context, job Job) (Measures, error) {
	runs := make(map[string]int)
	if job.clientGo() {
		queue := newQueue(job)
		for _, key := range queueKeys(job.Objects) {
			queue.Add(key)
		}
		for range job.Events {
			key, _ := queue.Get()
			runs[key]++
			queue.Add(key)
			queue.Done(key)
		}
		return served(runs), nil
	}
	all := make(chan struct{})
	count := 0
	_, err := startControllers(ctx, job, 1, 1, func(_ context.Context, gadget *Gadget) (reconcile.Result, error) {
		if count++; count <= job.Events {
			runs[gadget.Name]++
		}
		if count == job.Events {
			close(all)
		}
		return reconcile.Result{RequeueAfter: time.Nanosecond}, nil
	})
	if err != nil {
		return nil, err
	}
	<-all
	return served(runs), nil
}

func served(runs map[string]int) Measures {
	var counts []int
	for _, count := range runs {
		counts = append(counts, count)
	}
	return Measures{"keys": float64(len(counts)), "least": float64(slices.Min(counts)), "most": float64(slices.Max(counts))}
}
