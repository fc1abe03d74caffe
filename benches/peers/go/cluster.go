package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// config lifts the client's own limiter.
func config(job Job) *rest.Config {
	return &rest.Config{Host: fmt.Sprintf("http://127.0.0.1:%d", job.Port), QPS: -1}
}

var indexers = toolscache.Indexers{
	toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
	"place":                   func(object any) ([]string, error) { return []string{object.(*Gadget).Spec.Place}, nil },
}

// newInformer makes client-go's informer of gadgets.
func newInformer(job Job, resync time.Duration) (toolscache.SharedIndexInformer, error) {
	config := config(job)
	config.APIPath = "/apis"
	config.GroupVersion = &groupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(newScheme()).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	lists := toolscache.NewListWatchFromClient(client, "gadgets", "", fields.Everything())
	source := toolscache.ToListWatcherWithWatchListSemantics(lists, client)
	return toolscache.NewSharedIndexInformer(source, &Gadget{}, resync, toolscache.Indexers{}), nil
}

// mapper knows gadgets, so that nothing is asked for by discovery.
func mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{groupVersion})
	mapper.Add(groupVersion.WithKind("Gadget"), meta.RESTScopeNamespace)
	return mapper
}

// newCache makes controller-runtime's cache.
func newCache(job Job) (cache.Cache, error) {
	return cache.New(config(job), cache.Options{Scheme: newScheme(), Mapper: mapper()})
}

// cached is what is started, and how many objects it holds.
type cached struct {
	informer toolscache.SharedIndexInformer
	reader   client.Reader
}

func (c cached) len() int { return len(c.informer.GetStore().ListKeys()) }

// startCache starts either side's cache with one handler, and waits for the first list.
func startCache(ctx context.Context, job Job, handler toolscache.ResourceEventHandler) (cached, error) {
	if job.clientGo() {
		informer, err := newInformer(job, 0)
		if err != nil {
			return cached{}, err
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return cached{}, err
		}
		go informer.Run(ctx.Done())
		waitFor(registration.HasSynced)
		return cached{informer, nil}, nil
	}
	cache, err := newCache(job)
	if err != nil {
		return cached{}, err
	}
	go func() { _ = cache.Start(ctx) }()
	informer, err := cache.GetInformer(ctx, &Gadget{})
	if err != nil {
		return cached{}, err
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return cached{}, err
	}
	waitFor(registration.HasSynced)
	return cached{informer.(toolscache.SharedIndexInformer), cache}, nil
}

// waitFor looks more often than client-go's own way to wait, which would be measured instead.
func waitFor(come func() bool) {
	for !come() {
		time.Sleep(time.Millisecond)
	}
}

// ask tells the load generator what to do.
func ask(job Job, order string) (float64, error) {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/bench/%s", job.Port, order))
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
}
