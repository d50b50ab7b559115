package main

import (
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// docs/reports/scaling.md has a table of inputs, chosen or measured, and one of results. The formula of a
// result uses inputs and earlier results. This file computes the values. The value of least(a, b) is a name.

// numbers are the inputs and results, by name.
type numbers map[string]float64

var (
	inputLine  = regexp.MustCompile("^\\| `(\\w+)` \\| (.*?) \\| (\\S+) \\| (.*?) \\|$")
	resultLine = regexp.MustCompile("^\\| `(\\w+)` \\| (.*?) \\| `(.*?)` \\| (\\S+) \\|$")
	nameInside = regexp.MustCompile(`\b[a-z]\w*\b`)
	// leastForm is a formula whose value is the name of the least of some earlier results.
	leastForm = regexp.MustCompile(`^least\((\w+(?:, \w+)*)\)$`)
)

// scalingCommand computes the results again.
func scalingCommand([]string) error { return rewrite("../../docs/reports/scaling.md", workOut) }

// setInputs writes measured values and their source into the table, and computes the results.
func setInputs(document string, measured numbers, from string) (string, error) {
	set := 0
	document, err := editLines(document, "inputs", inputLine, func(m []string) (string, error) {
		if v, has := measured[m[1]]; has {
			set++
			return fmt.Sprintf("| `%s` | %s | %s | %s |", m[1], m[2], significant(v), from), nil
		}
		return m[0], nil
	})
	if err == nil && set != len(measured) {
		err = fmt.Errorf("%d of %d inputs have a line", set, len(measured))
	}
	if err != nil {
		return "", err
	}
	return workOut(document)
}

// workOut replaces the values of the results with those that follow from the inputs.
func workOut(document string) (string, error) {
	known := numbers{}
	document, err := editLines(document, "inputs", inputLine, func(m []string) (line string, err error) {
		known[m[1]], err = strconv.ParseFloat(m[3], 64)
		return m[0], err
	})
	if err != nil {
		return "", err
	}
	return editLines(document, "results", resultLine, func(m []string) (string, error) {
		if names := leastForm.FindStringSubmatch(m[3]); names != nil {
			least, err := known.least(strings.Split(names[1], ", "))
			return fmt.Sprintf("| `%s` | %s | `%s` | `%s` |", m[1], m[2], m[3], least), err
		}
		value, err := known.evaluate(m[3])
		known[m[1]] = value
		return fmt.Sprintf("| `%s` | %s | `%s` | %s |", m[1], m[2], m[3], significant(value)), err
	})
}

// least returns the name of the least of the named values, the first of equal ones.
func (n numbers) least(names []string) (string, error) {
	found := names[0]
	for _, name := range names {
		if _, known := n[name]; !known {
			return "", fmt.Errorf("%q is not known", name)
		}
		if n[name] < n[found] {
			found = name
		}
	}
	return found, nil
}

// editLines changes each line of a block's table that begins with a name. Such a line must match the form.
func editLines(
	document, block string, form *regexp.Regexp, edit func(match []string) (string, error),
) (string, error) {
	_, text, _, err := blockOf(document, block)
	if err != nil {
		return "", err
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		m := form.FindStringSubmatch(line)
		if m == nil {
			return "", fmt.Errorf("unreadable line %q", line)
		}
		lines[i], err = edit(m)
		if err != nil {
			return "", fmt.Errorf("%q: %w", line, err)
		}
	}
	return replaceBlock(document, block, strings.Join(lines, "\n"))
}

// evaluate computes a formula: a constant expression of Go with names, perhaps with ceil before all of it.
func (n numbers) evaluate(formula string) (float64, error) {
	formula, up := strings.CutPrefix(formula, "ceil")
	formula = nameInside.ReplaceAllStringFunc(formula, func(name string) string {
		if v, known := n[name]; known {
			return strconv.FormatFloat(v, 'e', -1, 64) // not as an integer, because integer division rounds
		}
		return name
	})
	result, err := types.Eval(token.NewFileSet(), nil, token.NoPos, formula)
	if err != nil {
		return 0, err
	}
	value, _ := constant.Float64Val(constant.ToFloat(result.Value))
	if up {
		value = math.Ceil(value)
	}
	return value, nil
}

// significant formats three digits, without trailing zeros.
func significant(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	if err != nil {
		panic(err) // the text comes from FormatFloat
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
