package judge_test

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// A judgement is the input of one case of testdata/verdicts.txt.
type judgement struct {
	*testing.T
	judge.Evidence
	judge.Bounds
}

// The cases break each invariant in each way that the judge checks. The verdict names the invariant and only
// the callback that broke it. Costs within the bounds are allowed, but counted.
func TestVerdicts(t *testing.T) {
	transcript.File(t, "testdata/verdicts.txt", func(t *testing.T, text string) string {
		_, sound, _ := strings.Cut(text, "== sound\n")
		sound, _, _ = strings.Cut(sound, "== ")
		return transcript.Cases(t, text, func(t *testing.T, name, body string) string {
			j := judgement{T: t, Evidence: judge.Evidence{IndexRead: true}}
			if name != "sound" && name != "many" {
				j.play(sound)
			}
			j.play(body)
			inputs, _, _ := strings.Cut("\n"+body, "\n  ")
			v := judge.Judge(j.Evidence, j.Bounds)
			if v.OK() == strings.Contains(v.String(), "broken") {
				t.Errorf("OK says %t of: %s", v.OK(), &v)
			}
			return strings.Trim(inputs, "\n") + "\n  " + strings.ReplaceAll(v.String(), "\n", "\n  ") + "\n"
		})
	})
}

// play applies the lines of a case:
//
//	[+|-]KIND ID[/NUMBER] FIELD=VALUE…
//	bounds FIELD=VALUE…
//
// KIND is a list of the evidence. A line changes the first record with that id and number. With - it removes
// the record, and with + it adds one. Times are milliseconds. A hash is written as the text that it is of.
func (j *judgement) play(text string) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "#") {
			continue
		}
		switch words[0] {
		case "bounds":
			j.set(reflect.ValueOf(&j.Bounds), words[1:])
		case "evidence":
			j.set(reflect.ValueOf(&j.Evidence), words[1:])
		default:
			j.record(words[0], words[1], words[2:])
		}
	}
}

func (j *judgement) record(kind, key string, fields []string) {
	list := reflect.ValueOf(&j.Evidence).Elem().FieldByName(strings.TrimLeft(kind, "+-"))
	id, number, numbered := strings.Cut(key, "/")
	at := 0
	for ; at < list.Len(); at++ {
		r := list.Index(at)
		if r.FieldByName("ID").String() == id &&
			(!numbered || fmt.Sprint(r.FieldByName("Number")) == number) {
			break
		}
	}
	switch {
	case kind[0] == '-':
		list.Set(reflect.AppendSlice(list.Slice(0, at), list.Slice(at+1, list.Len())))
		return
	case kind[0] == '+':
		at = list.Len()
		list.Set(reflect.Append(list, reflect.Zero(list.Type().Elem())))
		if numbered {
			fields = append([]string{"Number=" + number}, fields...)
		}
		fields = append([]string{"ID=" + id}, fields...)
	}
	j.set(list.Index(at).Addr(), fields)
}

// set sets fields of the struct that v points to.
func (j *judgement) set(v reflect.Value, fields []string) {
	for _, field := range fields {
		name, value, _ := strings.Cut(field, "=")
		var err error
		switch to := v.Elem().FieldByName(name).Addr().Interface().(type) {
		case *time.Time:
			*to = time.Time{}
			if value != "" {
				var ms int64
				_, err = fmt.Sscan(value, &ms)
				*to = time.UnixMilli(ms).UTC()
			}
		case *judge.Hash:
			*to = sha256.Sum256([]byte(value))
		case *time.Duration:
			*to, err = time.ParseDuration(value)
		case *[]time.Duration:
			*to = make([]time.Duration, 1)
			(*to)[0], err = time.ParseDuration(value)
		case *map[string]int:
			*to = map[string]int{value: 1}
		case *map[string]bool:
			*to = map[string]bool{value: true}
		case *func(string) string:
			ref, state, _ := strings.Cut(value, ":")
			*to = func(asked string) string {
				if asked == ref {
					return state
				}
				return "succeeded"
			}
		case *string:
			*to = value
		default:
			_, err = fmt.Sscan(value, to)
		}
		if err != nil {
			j.Fatalf("%s: %v", field, err)
		}
	}
}

func TestQuantiles(t *testing.T) {
	if got := judge.QuantilesOf(nil); got != (judge.Quantiles{}) {
		t.Errorf("of nothing: %v", got)
	}
	var ds []time.Duration
	for i := 100; i > 0; i-- {
		ds = append(ds, time.Duration(i))
	}
	if got := judge.QuantilesOf(ds); got != (judge.Quantiles{P50: 51, P99: 100, Most: 100}) {
		t.Errorf("of 1 to 100: %v", got)
	}
}
