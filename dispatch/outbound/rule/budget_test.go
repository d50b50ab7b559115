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

// This file holds what a rule may cost. What bounds it is checked by the steps.

// wantQuick fails unless work is done in ten times what maxSteps steps of a plain pattern take, in the best
// of many tries: the machine may be busy with something else. Both are measured in this build: the race
// detector makes it ten times as slow.
func wantQuick(t *testing.T, work func()) {
	t.Helper()
	const most, tries = 10, 50
	least := math.Inf(1)
	for try := range tries {
		budget := firstBudget()
		if try > 0 {
			budget = timeBudget() // the machine may be slower than it was
		}
		began := time.Now()
		work()
		least = min(least, float64(time.Since(began))/float64(budget))
		if least < most {
			return
		}
	}
	t.Errorf("it takes %.1f times the time of maxSteps at best", least)
}

var firstBudget = sync.OnceValue(timeBudget)

// timeBudget is how long maxSteps steps of a plain pattern take now, in the best of three tries.
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

// least is how long the quickest of some tries takes.
func least(tries int, try func()) time.Duration {
	least := time.Hour
	for range tries {
		began := time.Now()
		try()
		least = min(least, time.Since(began))
	}
	return least
}

// worstPatterns is the table of regular expressions.
const worstPatterns = "testdata/patterns.txt"

// worstTexts fill a body with what keeps many of them busy.
func worstTexts() []string {
	var texts []string
	for _, text := range []string{"a", "x", "ab", "a0 ", "\u212a", "支", "0", "\xff", "é", "-"} {
		texts = append(texts, strings.Repeat(text, MaxBodyBytes/len(text)))
	}
	return texts
}

// TestWorstPatterns: case 71. A pattern whose steps are not to be had is refused when the rule is given.
func TestWorstPatterns(t *testing.T) {
	t.Parallel()
	texts := worstTexts()
	transcript.Run(t, worstPatterns, func(text string) string {
		var p pattern
		var wrong []store.FieldError
		wantQuick(t, func() { wrong = parse.Decode(parse.Quote(text), &p, new(limits)) })
		if wrong != nil {
			return findings(t, wrong)
		}
		if n := compiledSize(t, text); p.size < n {
			t.Errorf("%s has %d instructions, and is taken for %d", text, n, p.size)
		}
		for _, body := range texts {
			d := Document{Text: []byte(body)}
			wantQuick(t, func() {
				d.steps = 0
				p.match(&d, d.Text)
			})
			if d.spent() {
				t.Errorf("%s takes more steps than there are on %q", text, parse.Cut(body, 4))
			}
		}
		return fmt.Sprintf("%d instructions on %d characters", p.size, p.reach)
	})
}

// compiledSize is how many instructions a pattern really has.
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

// BenchmarkWorstPatterns says what maxSteps is made of: how long a step of each takes, on the worst of the
// texts.
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

// filled returns a body of 64 KiB that has a text between its ends as often as it fits, with a number in each
// if it has a place for one.
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

// TestHostileDocuments: what looking at a body costs ends with the steps of the rule, which then says so. A
// line has how often a predicate is there, the predicate, and what a body begins with, has again and again,
// and ends with.
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
		told := strings.HasPrefix(why.Saw, parse.TooCostly+": ")
		if conclusion != WrongBody || matched || told != d.spent() || told && ps.judge(d) != isUnsure {
			t.Errorf("%.80s: %d, %+v; matched %v, %d steps", line, conclusion, why, matched, d.steps)
		}
		if told {
			return parse.TooCostly
		}
		return fmt.Sprintf("%d steps", d.steps)
	})
}

// TestPredicatesOfAUsualAnswerCostLittle: case 72. 64 of them, 8 deep, take a tenth of the steps: 1 ms.
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
