package rule

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

const (
	// MaxBodyBytes is the maximum of bytes of a body that a rule looks at.
	MaxBodyBytes = 64 << 10
	// maxPattern is the maximum length of a regular expression in characters.
	maxPattern = 512
	// maxSteps is the maximum cost of a rule on one answer: 10 ms of CPU time. A step is the cost of one
	// instruction of a compiled regular expression on one character: 4 to 7 ns for the worst patterns
	// (BenchmarkWorstPatterns, on the machine of docs/reports/performance.md). So 24 instructions may look at
	// a whole body. Other work counts as many steps as it takes time.
	maxSteps = 24 * MaxBodyBytes
)

// A pattern is a regular expression (RE2). Its cost is computed before it runs, because it cannot be stopped.
type pattern struct {
	re *regexp.Regexp
	// size is the number of its instructions. reach is the maximum of characters that it looks at.
	size, reach int
}

// match searches for the pattern in a text of the document. It is false if the steps are used up.
func (p *pattern) match(d *Document, text []byte) bool {
	return d.spend(p.size*min(p.reach, len(text))) && p.re.Match(text)
}

func (p *pattern) String() string { return p.re.String() }

// MarshalText returns the pattern as the caller wrote it.
func (p *pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ReadSetting parses a regular expression. It refuses one that could cost more than is left of maxSteps.
func (p *pattern) ReadSetting(s parse.Setting) {
	text, ok := s.Text(maxPattern)
	if !ok {
		return
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		s.Fail("%s", patternError(err))
		return
	}
	p.size, p.reach = sizeOf(parsed)+2, reachOf(parsed)
	spent := s.Shared.(*limits)
	spent.steps += p.size * p.reach
	if spent.steps > maxSteps {
		s.Fail("could take more than 10 ms: all regular expressions of a rule together may have at most %d "+
			"instructions, this one has %d; begin it with ^ and bound its repetitions, or use equals, "+
			"contains or in",
			maxSteps/MaxBodyBytes, p.size)
		return
	}
	p.re, err = regexp.Compile(text)
	if err != nil {
		s.Fail("%s", patternError(err))
	}
}

// patternError describes what is wrong with a pattern.
func patternError(err error) error {
	if s, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("is not a regular expression (RE2): %s at %q", s.Code, parse.Cut(s.Expr, 64))
	}
	return errors.New("is not a regular expression (RE2)")
}

// sizeOf returns the maximum number of instructions of a compiled part of a pattern. An instruction that
// compares a character with several others counts twice, because it takes twice as long. Nothing is compiled
// for that: written out, repetitions can be a hundred thousand instructions.
func sizeOf(re *syntax.Regexp) int {
	size := 0
	for _, sub := range re.Sub {
		size += sizeOf(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return 2 * len(re.Rune)
		}
		return len(re.Rune)
	case syntax.OpCharClass:
		return 2
	case syntax.OpRepeat:
		if re.Max < 0 {
			return size*max(re.Min, 1) + 2
		}
		return max(size*re.Max+re.Max-re.Min, 1)
	case syntax.OpAlternate:
		return size + len(re.Sub) - 1
	case syntax.OpConcat:
		return max(size, 1)
	case syntax.OpCapture, syntax.OpStar:
		return size + 2
	}
	return size + 1
}

// reachOf returns the maximum number of characters of a body that a pattern looks at. That is all of them,
// unless the pattern begins with ^ and has a bounded length.
func reachOf(re *syntax.Regexp) int {
	first := re
	for (first.Op == syntax.OpConcat || first.Op == syntax.OpCapture) && len(first.Sub) > 0 {
		first = first.Sub[0]
	}
	if first.Op != syntax.OpBeginText {
		return MaxBodyBytes
	}
	return min(longest(re)+1, MaxBodyBytes)
}

// longest returns the maximum length of a match of a part of a pattern, or MaxBodyBytes if that is less.
func longest(re *syntax.Regexp) int {
	total, most := 0, 0
	for _, sub := range re.Sub {
		n := longest(sub)
		total, most = min(total+n, MaxBodyBytes), max(most, n)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpAlternate:
		return most
	case syntax.OpStar, syntax.OpPlus:
		return most * MaxBodyBytes
	case syntax.OpRepeat:
		if re.Max < 0 {
			return most * MaxBodyBytes
		}
		return min(most*re.Max, MaxBodyBytes)
	}
	return total
}
