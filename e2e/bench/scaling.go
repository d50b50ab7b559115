package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// docs/scaling.md has a table of inputs, chosen or measured, and one of results. Each result has a formula of
// inputs and of results above it, and a value, which is worked out here.

// noValue stands for an input that was not measured, and for a result that needs it.
const noValue = "–"

// numbers are the inputs and results that have a value.
type numbers map[string]float64

var (
	inputLine  = regexp.MustCompile("^\\| `(\\w+)` \\| (.*?) \\| (\\S+) \\| (.*?) \\|$")
	resultLine = regexp.MustCompile("^\\| `(\\w+)` \\| (.*?) \\| `(.*?)` \\| (\\S+) \\|$")
)

// scalingCommand computes the results again.
func scalingCommand(args []string) error {
	flags := flag.NewFlagSet("scaling", flag.ContinueOnError)
	document := flags.String("document", "../../docs/scaling.md", "`file` with the two tables")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return rewrite(*document, workOut)
}

// setInputs writes measured values and their source into the table, and works out the results.
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

// workOut replaces the values of the results by those that follow from the inputs.
func workOut(document string) (string, error) {
	known := numbers{}
	document, err := editLines(document, "inputs", inputLine, func(m []string) (line string, err error) {
		if m[3] != noValue {
			known[m[1]], err = strconv.ParseFloat(m[3], 64)
		}
		return m[0], err
	})
	if err != nil {
		return "", err
	}
	return editLines(document, "results", resultLine, func(m []string) (string, error) {
		formula, err := parser.ParseExpr(m[3])
		if err != nil {
			return "", err
		}
		value, err := known.evaluate(formula)
		if err != nil {
			return "", fmt.Errorf("result %s: %w", m[1], err)
		}
		text := noValue
		if !math.IsNaN(value) {
			known[m[1]], text = value, significant(value)
		}
		return fmt.Sprintf("| `%s` | %s | `%s` | %s |", m[1], m[2], m[3], text), nil
	})
}

// editLines changes each line of a block's table that begins with a name. Such a line must have the form.
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
		if lines[i], err = edit(m); err != nil {
			return "", fmt.Errorf("%q: %w", line, err)
		}
	}
	return replaceBlock(document, block, strings.Join(lines, "\n"))
}

// evaluate works out a formula of + - * /, ceil and max. It is NaN if a name has no value.
func (n numbers) evaluate(formula ast.Expr) (float64, error) {
	switch e := formula.(type) {
	case *ast.BasicLit:
		return strconv.ParseFloat(e.Value, 64)
	case *ast.Ident:
		if v, known := n[e.Name]; known {
			return v, nil
		}
		return math.NaN(), nil
	case *ast.ParenExpr:
		return n.evaluate(e.X)
	case *ast.BinaryExpr:
		x, err1 := n.evaluate(e.X)
		y, err2 := n.evaluate(e.Y)
		if err1 != nil || err2 != nil {
			return 0, fmt.Errorf("%v, %v", err1, err2)
		}
		switch e.Op {
		case token.ADD:
			return x + y, nil
		case token.SUB:
			return x - y, nil
		case token.MUL:
			return x * y, nil
		case token.QUO:
			return x / y, nil
		}
	case *ast.CallExpr:
		most := math.Inf(-1)
		for _, arg := range e.Args {
			v, err := n.evaluate(arg)
			if err != nil {
				return 0, err
			}
			most = math.Max(most, v)
		}
		if f, ok := e.Fun.(*ast.Ident); ok && f.Name == "max" {
			return most, nil
		} else if ok && f.Name == "ceil" && len(e.Args) == 1 {
			return math.Ceil(most), nil
		}
	}
	return 0, fmt.Errorf("cannot be worked out")
}

// significant prints three digits, and no zeros that mean nothing.
func significant(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	text := strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(v)))), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
