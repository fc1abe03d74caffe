// Program peers measures client-go and controller-runtime: `peers measure JOB` prints one line of figures.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Job is what the bench asks for; see job.rs.
type Job struct {
	Bench    string `json:"bench"`
	Side     string `json:"side"`
	Mode     string `json:"mode"`
	Question string `json:"question"`
	Port     int    `json:"port"`
	Objects  int    `json:"objects"`
	Events   int    `json:"events"`
	Users    int    `json:"users"`
	Seconds  int    `json:"seconds"`
}

// Measures are figures by name.
type Measures map[string]float64

// bench measures one side of a bench.
type bench func(context.Context, Job) (Measures, error)

var benches = map[string]bench{
	"initial-list":         initialList,
	"watch-throughput":     watchThroughput,
	"fan-out":              fanOut,
	"readers-writer":       readersWriter,
	"lister-get":           listerGet,
	"relist":               relist,
	"idle":                 idle,
	"scale":                scale,
	"queue":                queueBench,
	"latency":              latency,
	"reconcile-throughput": reconcileThroughput,
	"fairness":             fairness,
}

const limit = 300 * time.Second

func (job Job) clientGo() bool {
	return job.Side == "client-go"
}

func main() {
	klog.SetOutput(os.Stderr)
	klog.LogToStderr(false)
	ctrl.SetLogger(logr.Discard())
	var job Job
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: peers measure JOB"))
	}
	if err := json.Unmarshal([]byte(os.Args[2]), &job); err != nil {
		fail(err)
	}
	if job.Mode == "any-version" {
		os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	}
	run, known := benches[job.Bench]
	if !known {
		fail(fmt.Errorf("no bench %q", job.Bench))
	}
	time.AfterFunc(limit, func() { fail(fmt.Errorf("not done in time")) })
	measures, err := run(context.Background(), job)
	if err != nil {
		fail(err)
	}
	line, err := json.Marshal(measures)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
	// Nothing is left to be closed: the process is one measurement.
	os.Exit(0)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
