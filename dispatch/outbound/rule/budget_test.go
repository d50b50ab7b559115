package rule

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file tests the maximum cost of a rule, which is measured in steps.

// wantQuick fails the test unless the best of many tries of work takes at most ten times as long as maxSteps
// steps of a plain pattern. Only the best try counts, because the machine may be busy. Both are measured in
// this build, because the race detector makes it ten times as slow.
func wantQuick(t *testing.T, work func()) {
	t.Helper()
	const most, tries = 10, 50
	least := math.Inf(1)
	for try := range tries {
		budget := firstBudget()
		if try > 0 {
			budget = timeBudget() // the machine may be slower now
		}
		started := time.Now()
		work()
		least = min(least, float64(time.Since(started))/float64(budget))
		if least < most {
			return
		}
	}
	t.Errorf("it takes %.1f times the time of maxSteps at best", least)
}

var firstBudget = sync.OnceValue(timeBudget)

// timeBudget returns how long maxSteps steps of a plain pattern take now, in the best of three tries.
func timeBudget() time.Duration {
	const text = `(a*)*b`
	re, body := regexp.MustCompile(text), strings.Repeat("a", MaxBodyBytes)
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		panic(err)
	}
	steps := (sizeOf(parsed) + 2) * MaxBodyBytes
	return least(3, func() { re.MatchString(body) }) * maxSteps / time.Duration(steps)
}

// least returns the duration of the fastest try.
func least(tries int, try func()) time.Duration {
	least := time.Hour
	for range tries {
		started := time.Now()
		try()
		least = min(least, time.Since(started))
	}
	return least
}

// worstPatterns is the table of regular expressions.
const worstPatterns = "testdata/patterns.txt"

// worstTexts returns bodies that keep many of the patterns busy.
func worstTexts() []string {
	var texts []string
	for _, text := range []string{"a", "x", "ab", "a0 ", "\u212a", "支", "0", "\xff", "é", "-"} {
		texts = append(texts, strings.Repeat(text, MaxBodyBytes/len(text)))
	}
	return texts
}

// TestWorstPatterns is case 71 of the security list. A pattern that could use more than maxSteps is refused
// when the rule is parsed.
func TestWorstPatterns(t *testing.T) {
	t.Parallel()
	texts := worstTexts()
	transcript.Run(t, worstPatterns, func(text string) string {
		var p pattern
		var wrong []store.FieldError
		wantQuick(t, func() { wrong = parse.Decode(parse.Quote(text), &p, new(limits)) })
		if wrong != nil {
			return problems(t, wrong)
		}
		if n := compiledSize(t, text); p.size < n {
			t.Errorf("%s has %d instructions, but size is %d", text, n, p.size)
		}
		for _, body := range texts {
			d := Document{Text: []byte(body)}
			wantQuick(t, func() {
				d.steps = 0
				p.match(&d, d.Text)
			})
			if d.spent() {
				t.Errorf("%s takes more than maxSteps on %q", text, parse.Cut(body, 4))
			}
		}
		return fmt.Sprintf("%d instructions on %d characters", p.size, p.reach)
	})
}

// compiledSize returns the real number of instructions of a pattern.
func compiledSize(t testing.TB, text string) int {
	t.Helper()
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		t.Fatal(err)
	}
	return len(program.Inst)
}

// BenchmarkWorstPatterns measures the duration of a step of each pattern on the worst text. maxSteps is
// derived from it.
func BenchmarkWorstPatterns(b *testing.B) {
	for _, text := range transcript.Inputs(b, worstPatterns) {
		var p pattern
		if parse.Decode(parse.Quote(text), &p, new(limits)) != nil || p.reach < MaxBodyBytes {
			continue
		}
		b.Run(text, func(b *testing.B) {
			var worst time.Duration
			for _, body := range worstTexts() {
				worst = max(worst, least(5, func() { p.re.MatchString(body) }))
			}
			b.ReportMetric(float64(worst.Nanoseconds())/float64(p.size*MaxBodyBytes), "ns/step")
			b.ReportMetric(float64(worst.Microseconds())/1000, "ms/body")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// filled returns a body of at most 64 KiB that repeats a text between its ends. Each %d in the text becomes a
// number.
func filled(start, text, end string) string {
	var b strings.Builder
	b.WriteString(start)
	for i := 0; text != ""; i++ {
		one := strings.Replace(text, "%d", strconv.Itoa(i), 1)
		if b.Len()+len(one)+len(end) > MaxBodyBytes {
			break
		}
		b.WriteString(one)
	}
	return b.String() + end
}

// times returns as many equal predicates.
func times(n int, predicate string) string {
	return "[" + strings.Repeat(predicate+",", n-1) + predicate + "]"
}

// TestHostileDocuments checks that the cost of a body ends with the steps of the rule, and that the rule then
// says so. A line has the number of predicates, the predicate, and the start, the repeated part and the end
// of the body.
func TestHostileDocuments(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/hostile.txt", func(line string) string {
		words := strings.Split(line, " | ")
		n, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		predicates, body := times(n, words[1]), filled(words[2], words[3], words[4])
		r := compiled(t, `{"body":{"json":`+predicates+`}}`)
		conclusion, why := r.Conclude("x", NewDocument(http.StatusOK, "", []byte(body)), nil)
		ps := predicatesOf(t, predicates)
		var d *Document
		var matched bool
		wantQuick(t, func() {
			d = NewDocument(http.StatusOK, "", []byte(body))
			matched = ps.Match(d)
		})
		tooCostly := strings.HasPrefix(why.Saw, parse.TooCostly+": ")
		if conclusion != WrongBody || matched || tooCostly != d.spent() ||
			tooCostly && ps.evaluate(d) != isUnknown {
			t.Errorf("%.80s: %d, %+v; matched %v, %d steps", line, conclusion, why, matched, d.steps)
		}
		if tooCostly {
			return parse.TooCostly
		}
		return fmt.Sprintf("%d steps", d.steps)
	})
}

// TestPredicatesOfAUsualAnswerCostLittle is case 72 of the security list. 64 predicates, nested 8 deep, take
// a tenth of the steps, which is 1 ms.
func TestPredicatesOfAUsualAnswerCostLittle(t *testing.T) {
	t.Parallel()
	body := filled(`{"code":"OK","data":{`, `"field%d":"a usual value",`, `"last":1}}`)[:4000]
	body = body[:strings.LastIndexByte(body, ',')] + `}}`
	inner := times(64-7, `{"pointer":"/data/field99","eq":"another"}`)
	for range 7 {
		inner = `[{"all":` + inner + `}]`
	}
	d := NewDocument(http.StatusOK, "", []byte(body))
	predicatesOf(t, inner).Match(d)
	if d.steps == 0 || d.steps > maxSteps/10 {
		t.Errorf("%d steps of %d", d.steps, maxSteps)
	}
}
