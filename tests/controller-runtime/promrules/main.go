// Command promrules reads a file of alert rules from its input, as `promtool check rules` does, and prints what is wrong
// with them; its status tells whether that is anything.
package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "can't be read:", err)
		os.Exit(2)
	}
	quiet := slog.New(slog.DiscardHandler)
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), quiet)
	for _, err := range errs {
		fmt.Println(err)
	}
	if len(errs) > 0 {
		os.Exit(1)
	}
	rules := 0
	for _, group := range groups.Groups {
		rules += len(group.Rules)
	}
	fmt.Println("rules:", rules)
}
