package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	asked   = 10_000
	gets    = 1_000_000
	lookUps = 200_000
)

func scattered(below int) []int {
	var numbers []int
	for at := range asked {
		numbers = append(numbers, (at*7_919+13)%below)
	}
	return numbers
}

func scans(objects int) int {
	return min(max(2_000_000/objects, 3), 200)
}

// nanos is the mean of one call, over many.
func nanos(calls int, numbers []int, call func(int)) float64 {
	began := time.Now()
	for at := range calls {
		call(numbers[at%len(numbers)])
	}
	return float64(time.Since(began).Nanoseconds()) / float64(calls)
}

func filled(objects int) toolscache.Indexer {
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers)
	for at := range objects {
		_ = indexer.Add(small(at))
	}
	return indexer
}

func listerGet(ctx context.Context, job Job) (Measures, error) {
	numbers := scattered(job.Objects)
	var get, index, walk, choose func(int)
	var names, places []string
	for _, at := range numbers {
		names = append(names, name(at))
		places = append(places, place(at))
	}
	found, walked := 0, 0
	if job.clientGo() {
		indexer := filled(job.Objects)
		selector, err := labels.Parse("shard=s07")
		if err != nil {
			return nil, err
		}
		var keys []string
		for _, at := range numbers {
			keys = append(keys, namespace(at)+"/"+name(at))
		}
		get = func(at int) { _, _, _ = indexer.GetByKey(keys[at]) }
		index = func(at int) { _, _ = indexer.ByIndex("place", places[at]) }
		walk = func(at int) {
			sum := 0
			objects, _ := indexer.ByIndex("place", places[at])
			for _, object := range objects {
				sum += int(object.(*Gadget).Spec.Replicas)
			}
			walked = sum
		}
		choose = func(int) {
			found = 0
			_ = toolscache.ListAll(indexer, selector, func(any) { found++ })
		}
	} else {
		cache, err := readyCache(ctx, job)
		if err != nil {
			return nil, err
		}
		var keys []types.NamespacedName
		for _, at := range numbers {
			keys = append(keys, types.NamespacedName{Namespace: namespace(at), Name: name(at)})
		}
		get = func(at int) { _ = cache.Get(ctx, keys[at], &Gadget{}) }
		index = func(at int) { _ = cache.List(ctx, &GadgetList{}, client.MatchingFields{"place": places[at]}) }
		walk = func(at int) {
			var list GadgetList
			_ = cache.List(ctx, &list, client.MatchingFields{"place": places[at]})
			walked = replicas(list.Items)
		}
		choose = func(int) {
			var list GadgetList
			_ = cache.List(ctx, &list, client.MatchingLabels{"shard": "s07"})
			found = len(list.Items)
		}
	}
	positions := make([]int, asked)
	for at := range positions {
		positions[at] = at
	}
	gets, lookUps := gets, lookUps
	if !job.clientGo() {
		// It copies what it finds: fewer calls say the same.
		gets, lookUps = gets/10, lookUps/10
	}
	measures := Measures{
		"get":    nanos(gets, positions, get),
		"index":  nanos(lookUps, positions, index) / 1e3,
		"walk":   nanos(lookUps, positions, walk) / 1e3,
		"select": nanos(scans(job.Objects), positions, choose) / 1e6,
	}
	if walked == 0 {
		return nil, fmt.Errorf("nothing was read")
	}
	if found != job.Objects/100 {
		return nil, fmt.Errorf("the scan found %d", found)
	}
	return measures, nil
}

// replicas adds up what each gadget says: it looks at all of them.
func replicas(gadgets []Gadget) int {
	sum := 0
	for at := range gadgets {
		sum += int(gadgets[at].Spec.Replicas)
	}
	return sum
}

// readyCache is controller-runtime's cache, indexed and synced from the load generator.
func readyCache(ctx context.Context, job Job) (cache.Cache, error) {
	cache, err := newCache(job)
	if err != nil {
		return nil, err
	}
	values := func(object client.Object) []string { return []string{object.(*Gadget).Spec.Place} }
	if err := cache.IndexField(ctx, &Gadget{}, "place", values); err != nil {
		return nil, err
	}
	go func() { _ = cache.Start(ctx) }()
	cache.WaitForCacheSync(ctx)
	return cache, nil
}

// readersWriter has one writer at full speed beside readers of whole namespaces.
func readersWriter(ctx context.Context, job Job) (Measures, error) {
	walks := job.Question == "walk"
	var store toolscache.Store
	var list func(string) int
	if job.clientGo() {
		indexer := filled(job.Objects)
		store = indexer
		list = func(namespace string) int {
			found, sum := 0, 0
			count := func(any) { found++ }
			if walks {
				count = func(object any) { sum += int(object.(*Gadget).Spec.Replicas) }
			}
			_ = toolscache.ListAllByNamespace(indexer, namespace, labels.Everything(), count)
			return found + sum/replicasOfSmall
		}
	} else {
		cache, err := readyCache(ctx, job)
		if err != nil {
			return nil, err
		}
		informer, err := cache.GetInformer(ctx, &Gadget{})
		if err != nil {
			return nil, err
		}
		store = informer.(toolscache.SharedIndexInformer).GetStore()
		list = func(namespace string) int {
			var list GadgetList
			_ = cache.List(ctx, &list, client.InNamespace(namespace))
			if walks {
				return replicas(list.Items) / replicasOfSmall
			}
			return len(list.Items)
		}
	}
	updates := make([]*Gadget, asked)
	for at, number := range scattered(job.Objects) {
		updates[at] = small(number)
	}
	var reads, wrong atomic.Int64
	var stop atomic.Bool
	var readers sync.WaitGroup
	for reader := range job.Users {
		readers.Go(func() {
			for at := reader; !stop.Load(); at++ {
				if list(namespace((at*aNamespace)%job.Objects)) != aNamespace {
					wrong.Add(1)
				}
				reads.Add(1)
			}
		})
	}
	var took []float64
	began := time.Now()
	for at := 0; time.Since(began) < time.Duration(job.Seconds)*time.Second; at++ {
		start := time.Now()
		_ = store.Update(updates[at%asked])
		took = append(took, float64(time.Since(start).Nanoseconds())/1e3)
	}
	seconds := time.Since(began).Seconds()
	stop.Store(true)
	readers.Wait()
	if wrong.Load() > 0 {
		return nil, fmt.Errorf("%d lists were wrong", wrong.Load())
	}
	return Measures{
		"p50": quantile(took, 0.5), "p999": quantile(took, 0.999), "writes": float64(len(took)) / seconds,
		"reads": float64(reads.Load()) / seconds,
	}, nil
}
