package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

const aRound = 1_000

func newQueue(job Job) workqueue.TypedRateLimitingInterface[string] {
	if job.clientGo() {
		return workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second))
	}
	return priorityqueue.New[string]("bench")
}

func queueKeys(count int) []string {
	var keys []string
	for at := range count {
		keys = append(keys, namespace(at)+"/"+name(at))
	}
	return keys
}

func micros(began time.Time) float64 {
	return float64(time.Since(began).Nanoseconds()) / 1e3
}

func queueBench(_ context.Context, job Job) (Measures, error) {
	switch job.Question {
	case "contended":
		return queueContended(job)
	case "delayed":
		return queueDelayed(job)
	default:
		return queueInTurn(job)
	}
}

func queueInTurn(job Job) (Measures, error) {
	queue, keys := newQueue(job), queueKeys(job.Objects)
	var turns, adds []float64
	for range job.Events {
		began := time.Now()
		for _, key := range keys {
			queue.Add(key)
		}
		adds = append(adds, micros(began))
		for range keys {
			key, _ := queue.Get()
			queue.Done(key)
		}
		turns = append(turns, micros(began))
	}
	return Measures{"turn": quantile(turns, 0.5), "adds": quantile(adds, 0.5)}, nil
}

// queueContended has workers that take keys and give them back, and adds new keys in bursts.
func queueContended(job Job) (Measures, error) {
	queue := newQueue(job)
	for _, key := range queueKeys(job.Objects) {
		queue.Add(key)
	}
	for range job.Users {
		go func() {
			for {
				key, ended := queue.Get()
				if ended {
					return
				}
				time.Sleep(20 * time.Millisecond)
				queue.Add(key)
				queue.Done(key)
			}
		}()
	}
	var took []float64
	for burst := range job.Events {
		var keys []string
		for at := range aRound {
			keys = append(keys, fmt.Sprintf("new-%d/%d", burst, at))
		}
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		for _, key := range keys {
			queue.Add(key)
		}
		took = append(took, micros(began))
	}
	return Measures{"p50": quantile(took, 0.5), "max": quantile(took, 1)}, nil
}

func queueDelayed(job Job) (Measures, error) {
	queue, keys := newQueue(job), queueKeys(job.Objects)
	before := liveHeap()
	due := time.Now().Add(time.Duration(job.Seconds) * time.Second)
	for _, key := range keys {
		queue.AddAfter(key, time.Until(due))
	}
	// What was added on the way to the queue's own goroutine counts too.
	time.Sleep(time.Second)
	bytes := (liveHeap() - before) * 1e6 / float64(len(keys))
	if time.Now().After(due) {
		return nil, fmt.Errorf("adding took too long")
	}
	for range keys {
		key, _ := queue.Get()
		queue.Done(key)
	}
	return Measures{"bytes": bytes, "drain": time.Since(due).Seconds()}, nil
}
