package main

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// cpuSeconds is what this process has used so far.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// megabytes reads a field of /proc/self/status.
func megabytes(field string) float64 {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, field); found {
			kilobytes, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kilobytes * 1024 / 1e6
		}
	}
	return 0
}

// liveHeap is what a collection leaves, in megabytes.
func liveHeap() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / 1e6
}

// spent counts from a moment on.
type spent struct {
	at  time.Time
	cpu float64
}

func fromNow() spent {
	return spent{time.Now(), cpuSeconds()}
}

func (s spent) wall() float64 { return time.Since(s.at).Seconds() }
func (s spent) used() float64 { return cpuSeconds() - s.cpu }

// quantile returns the figure below which this share of all lies.
func quantile(figures []float64, share float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[int(share*float64(len(sorted)-1)+0.5)]
}

// tally collects delays, and waits until the last change was heard so often as wanted.
type tally struct {
	sync.Mutex
	delays        []float64
	calls, wanted int
	objects       int
	all           chan struct{}
}

func newTally(objects, wanted int) *tally {
	return &tally{objects: objects, wanted: wanted, all: make(chan struct{}, 1)}
}

// hear takes note of a state; one that carries no time is of the first list.
func (t *tally) hear(gadget *Gadget) {
	if gadget.Spec.Sent == 0 {
		return
	}
	delay := float64(time.Now().UnixNano()-gadget.Spec.Sent) / 1e3
	t.Lock()
	defer t.Unlock()
	t.delays = append(t.delays, delay)
	if isLast(gadget, t.objects) {
		if t.calls++; t.calls == t.wanted {
			t.all <- struct{}{}
		}
	}
}

func (t *tally) take() []float64 {
	t.Lock()
	defer t.Unlock()
	delays := t.delays
	t.delays = nil
	return delays
}
