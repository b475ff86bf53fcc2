package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// table holds the results of all rounds.
type table struct {
	products []string // in the order in which they were measured; the ratios are to the first
	results  map[string][]result
}

func report(args []string) error {
	if len(args) != 1 {
		return errors.New("report needs one file of results")
	}
	t, err := readResults(args[0])
	if err != nil {
		return err
	}
	t.section("Throughput and latency of sends (p50, p99 in ms), and ratios of the rates", func(rs []result) string {
		return fmt.Sprintf("%s/s, %.2f, %.1f", thousands(median(rs, func(r result) float64 { return r.PerSecond })),
			median(rs, func(r result) float64 { return r.P50 }), median(rs, func(r result) float64 { return r.P99 }))
	}, func(r result) float64 { return r.PerSecond })
	t.section("CPU of all members per message in us (of it in the kernel), and ratios", func(rs []result) string {
		return fmt.Sprintf("%.0f (%.0f)", median(rs, result.cpu), median(rs, func(r result) float64 { return r.SysMicros }))
	}, result.cpu)
	t.section("CPU of the client per message in us", func(rs []result) string {
		return fmt.Sprintf("%.0f", median(rs, func(r result) float64 { return r.OwnMicros }))
	}, nil)
	t.section("Bytes that all members write to the disk per message, and ratios", func(rs []result) string {
		return thousands(median(rs, func(r result) float64 { return r.Written }))
	}, func(r result) float64 { return r.Written })
	t.section("Memory of all members after the row in MiB: anonymous, mapped", func(rs []result) string {
		return fmt.Sprintf("%.0f, %.0f", median(rs, func(r result) float64 { return r.AnonMiB }), median(rs, func(r result) float64 { return r.MappedMiB }))
	}, nil)
	t.loads()
	return nil
}

func (r result) cpu() float64 { return r.UserMicros + r.SysMicros }

func readResults(path string) (*table, error) {
	f, err := os.Open(path) //nolint:gosec // the caller names it
	if err != nil {
		return nil, fmt.Errorf("open results: %w", err)
	}
	defer func() { _ = f.Close() }()
	t := &table{results: make(map[string][]result)}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("read result: %w", err)
		}
		if !slices.Contains(t.products, r.Product) {
			t.products = append(t.products, r.Product)
		}
		key := r.Row + "/" + r.Product
		t.results[key] = append(t.results[key], r)
	}
	return t, lines.Err()
}

// section prints one table: a cell per row and product, with the ratio of value to the first product unless value is nil.
func (t *table) section(title string, cell func([]result) string, value func(result) float64) {
	fmt.Printf("\n%s:\n\n| row | %s |\n|---|%s\n", title, strings.Join(t.products, " | "), strings.Repeat("---|", len(t.products)))
	for _, row := range rowNames() {
		first := t.results[row+"/"+t.products[0]]
		cells := make([]string, 0, len(t.products))
		found := false
		for i, product := range t.products {
			rs := t.results[row+"/"+product]
			if len(rs) == 0 {
				cells = append(cells, "-")
				continue
			}
			found = true
			text := cell(rs)
			if i > 0 && value != nil && len(first) > 0 {
				text += fmt.Sprintf(" (x%.2f)", median(rs, value)/median(first, value))
			}
			cells = append(cells, text)
		}
		if found {
			fmt.Printf("| %s | %s |\n", titleOf(row), strings.Join(cells, " | "))
		}
	}
}

// loads prints between which loads of the machine the rows were measured, and how many messages came twice.
func (t *table) loads() {
	low, high, repeated, rounds := -1.0, 0.0, uint64(0), 0
	for _, rs := range t.results {
		for _, r := range rs {
			if low < 0 || r.Load < low {
				low = r.Load
			}
			high, repeated, rounds = max(high, r.Load), repeated+r.Repeated, max(rounds, r.Round)
		}
	}
	fmt.Printf("\nMedians of %d rounds; load of the machine %.1f to %.1f; %d messages were received more than once.\n", rounds, low, high, repeated)
}

// median returns the median of a value, of the two in the middle their mean.
func median(rs []result, value func(result) float64) float64 {
	values := make([]float64, 0, len(rs))
	for _, r := range rs {
		values = append(values, value(r))
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// thousands writes a number with commas.
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
