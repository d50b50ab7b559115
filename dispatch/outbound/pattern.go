package outbound

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
)

const (
	// maxPattern is how long a regular expression may be, in characters; maxInstructions, how long all of a rule may be once compiled.
	maxPattern      = 512
	maxInstructions = 4000
	// maxSteps is what all regular expressions that look at a document may cost: the product of how long each is, compiled, and how long
	// its text. It keeps them to some tenths of a second; one of 250 instructions may look at 64 KiB.
	maxSteps = 16 << 20
)

// A pattern is a regular expression (RE2) and how many instructions it has.
type pattern struct {
	re   *regexp.Regexp
	size int
}

// match looks for the pattern anywhere in a text of the document. It finds nothing once maxSteps are used up.
func (p *pattern) match(d *Document, text []byte) bool {
	d.steps += p.size * len(text)
	return d.steps <= maxSteps && p.re.Match(text)
}

func (p *pattern) String() string { return p.re.String() }

// pattern reads a regular expression; nil: it is none.
func (r *jsonReader) pattern(node int32, field string) *pattern {
	text, ok := r.textOf(node, field, maxPattern)
	if !ok {
		return nil
	}
	p, err := compilePattern(text)
	if err != nil {
		r.fail(field, "%s", err)
		return nil
	}
	if r.instructions += p.size; r.instructions > maxInstructions {
		r.fail(field, "is too large, with all its repeats written out")
		return nil
	}
	return p
}

// compilePattern compiles a regular expression and counts its instructions.
func compilePattern(text string) (*pattern, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, patternError(err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, patternError(err)
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, patternError(err)
	}
	return &pattern{re, len(program.Inst)}, nil
}

// patternError says what is wrong with a pattern.
func patternError(err error) error {
	if s, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("is not a regular expression (RE2): %s at %q", s.Code, cut(s.Expr, 64))
	}
	return errors.New("is not a regular expression (RE2)")
}
