package rule

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

const (
	// MaxBodyBytes is the most of a body that a rule looks at.
	MaxBodyBytes = 64 << 10
	// maxPattern is how long a regular expression may be, in characters.
	maxPattern = 512
	// maxSteps is what a rule may cost on one answer: 10 ms of CPU time. A step is what one instruction of a
	// compiled regular expression takes on one character: 4 to 7 ns over the table of worst patterns
	// (BenchmarkWorstPatterns, on the machine of docs/reports/performance.md), so that 24 instructions may
	// look at a whole body. Other work is counted in steps that take as long.
	maxSteps = 24 * MaxBodyBytes
)

// A pattern is a regular expression (RE2). Its cost is known beforehand, for once begun it cannot be stopped.
type pattern struct {
	re *regexp.Regexp
	// size is how many instructions it has, reach how many characters of a text it looks at, at most.
	size, reach int
}

// match looks for the pattern anywhere in a text of the document. It finds nothing once the steps are used
// up.
func (p *pattern) match(d *Document, text []byte) bool {
	return d.spend(p.size*min(p.reach, len(text))) && p.re.Match(text)
}

func (p *pattern) String() string { return p.re.String() }

// MarshalText returns the pattern as it was given.
func (p *pattern) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ReadSetting reads a regular expression, unless it could cost more than is left of maxSteps.
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
		s.Fail("could take more than 10 ms: all regular expressions of a rule have at most %d "+
			"instructions together, this one %d; begin it with ^ and bound what it repeats, "+
			"or use equals, contains or in",
			maxSteps/MaxBodyBytes, p.size)
		return
	}
	p.re, err = regexp.Compile(text)
	if err != nil {
		s.Fail("%s", patternError(err))
	}
}

// patternError says what is wrong with a pattern.
func patternError(err error) error {
	if s, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("is not a regular expression (RE2): %s at %q", s.Code, parse.Cut(s.Expr, 64))
	}
	return errors.New("is not a regular expression (RE2)")
}

// sizeOf returns how many instructions a part of a pattern has once it is compiled, at most. What compares
// a character with more than one other counts twice: it takes twice as long. Nothing is compiled to know
// it: written out, repeats can be a hundred thousand instructions.
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

// reachOf returns how many characters of a body a pattern looks at, at most: all, unless it is bound to the
// start of the text and ends.
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

// longest returns how many characters the longest match of a part of a pattern has, or MaxBodyBytes.
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
