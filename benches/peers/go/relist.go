package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
)

// relist measures a list again of what has not changed, or a resync with live changes meanwhile.
func relist(ctx context.Context, job Job) (Measures, error) {
	tally := newTally(job.Objects, 1)
	var calls atomic.Int64
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { calls.Add(1) },
		UpdateFunc: func(before, object any) {
			calls.Add(1)
			if old, gadget := before.(*Gadget), object.(*Gadget); old.ResourceVersion != gadget.ResourceVersion {
				tally.hear(gadget)
			}
		},
	}
	if job.Question == "resync" {
		return resync(ctx, job, tally, handler, &calls)
	}
	if _, err := startCache(ctx, job, handler); err != nil {
		return nil, err
	}
	time.Sleep(2 * time.Second)
	settled := megabytes("VmRSS:")
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return nil, err
	}
	calls.Store(0)
	began, err := ask(job, "expire?watches=1")
	if err != nil {
		return nil, err
	}
	<-tally.all
	wall := (float64(time.Now().UnixNano()) - began) / 1e9
	peak := megabytes("VmHWM:")
	return Measures{"wall": wall, "peak": peak, "share": peak / settled, "calls": float64(calls.Load())}, nil
}

func resync(
	ctx context.Context, job Job, tally *tally, handler toolscache.ResourceEventHandler, calls *atomic.Int64,
) (Measures, error) {
	informer, err := newInformer(job, 2*time.Second)
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	waitFor(registration.HasSynced)
	time.Sleep(time.Second)
	calls.Store(0)
	order := fmt.Sprintf("pace?events=%d&rate=%d&watches=1", job.Events, job.Events/job.Seconds)
	if _, err := ask(job, order); err != nil {
		return nil, err
	}
	<-tally.all
	delays := tally.take()
	return Measures{
		"p50": quantile(delays, 0.5) / 1e3, "max": quantile(delays, 1) / 1e3, "calls": float64(calls.Load()),
	}, nil
}

// scale measures the cost of one object: of the first list, of a change, of a read.
func scale(ctx context.Context, job Job) (Measures, error) {
	last := make(chan struct{}, 1)
	handler := toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(_, object any) {
		if isLast(object.(*Gadget), job.Objects) {
			last <- struct{}{}
		}
	}}
	spent := fromNow()
	cached, err := startCache(ctx, job, handler)
	if err != nil {
		return nil, err
	}
	sync := spent.wall() * 1e6 / float64(job.Objects)
	time.Sleep(time.Second)
	memory := megabytes("VmRSS:") * 1e3 / float64(job.Objects)
	began, err := ask(job, fmt.Sprintf("flood?events=%d&watches=1", job.Events))
	if err != nil {
		return nil, err
	}
	<-last
	update := (float64(time.Now().UnixNano()) - began) / 1e3 / float64(job.Events)
	var keys []string
	for _, at := range scattered(job.Objects) {
		keys = append(keys, namespace(at)+"/"+name(at))
	}
	get := nanos(gets, scattered(asked), func(at int) { _, _, _ = cached.informer.GetStore().GetByKey(keys[at]) })
	return Measures{"sync": sync, "update": update, "get": get, "memory": memory}, nil
}
