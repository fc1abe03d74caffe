// Command promlint reads metrics in Prometheus' text format from its input, as `promtool check metrics` does, and prints
// what its linter has against them; its status tells whether that is anything.
package main

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func main() {
	problems, err := promlint.New(os.Stdin).Lint()
	if err != nil {
		fmt.Fprintln(os.Stderr, "can't be read:", err)
		os.Exit(2)
	}
	for _, problem := range problems {
		fmt.Println(problem.Metric, problem.Text)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}
