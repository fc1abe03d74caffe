package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
)

func initialList(ctx context.Context, job Job) (Measures, error) {
	spent := fromNow()
	cached, err := startCache(ctx, job, toolscache.ResourceEventHandlerFuncs{})
	if err != nil {
		return nil, err
	}
	wall, cpu := spent.wall(), spent.used()
	if held := cached.len(); held != job.Objects {
		return nil, fmt.Errorf("%d objects", held)
	}
	time.Sleep(time.Second)
	measures := Measures{"wall": wall, "cpu": cpu, "peak": megabytes("VmHWM:"), "settled": megabytes("VmRSS:")}
	measures["heap"] = liveHeap()
	cached.len()
	return measures, nil
}

func watchThroughput(ctx context.Context, job Job) (Measures, error) {
	var calls atomic.Int64
	last := make(chan struct{}, 1)
	handler := toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(_, object any) {
		calls.Add(1)
		if isLast(object.(*Gadget), job.Objects) {
			last <- struct{}{}
		}
	}}
	if _, err := startCache(ctx, job, handler); err != nil {
		return nil, err
	}
	spent := fromNow()
	began, err := ask(job, fmt.Sprintf("flood?events=%d&watches=1", job.Events))
	if err != nil {
		return nil, err
	}
	<-last
	wall := (float64(time.Now().UnixNano()) - began) / 1e9
	events := float64(job.Events)
	return Measures{"rate": events / wall, "cpu": spent.used() * 1e6 / events, "calls": float64(calls.Load())}, nil
}

func idle(ctx context.Context, job Job) (Measures, error) {
	cached, err := startCache(ctx, job, toolscache.ResourceEventHandlerFuncs{})
	if err != nil {
		return nil, err
	}
	time.Sleep(3 * time.Second)
	spent := fromNow()
	time.Sleep(time.Duration(job.Seconds) * time.Second)
	used := spent.used()
	cached.len()
	return Measures{"cpu": used * 1e3, "share": used / spent.wall() * 100}, nil
}
