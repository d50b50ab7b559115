package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay"
)

func TestSourcesHaveDefaults(t *testing.T) {
	list, wrong := relay.ParseSources(
		[]byte(`[{"name":"pay","dsn":"mysql://relay:pw@db1/pay?tls=true"}]`))
	if wrong != nil || len(list) != 1 {
		t.Fatal(list, wrong)
	}
	want := relay.SourceConfig{
		Name: "pay", DSN: "mysql://relay:pw@db1/pay?tls=true", Table: "dispatcher_outbox",
		Origin: "db1:3306/pay/dispatcher_outbox", Project: "default", Poll: 100 * time.Millisecond,
		Batch: 500, Tail: true,
	}
	if list[0] != want {
		t.Errorf("got %+v, want %+v", list[0], want)
	}
}

func TestSourcesHaveSettings(t *testing.T) {
	list, wrong := relay.ParseSources([]byte(`[{"name":"a.b_c-1","dsn":"postgres://u@h:6432/d",
		"password_file":"/run/pw","table":"s.t","origin":"orders","project":"shop","poll":"1s","batch":1000,
		"keep":"7d","min_age":"2s","tail":false}]`))
	want := relay.SourceConfig{
		Name: "a.b_c-1", DSN: "postgres://u@h:6432/d", PasswordFile: "/run/pw", Table: "s.t",
		Origin: "orders", Project: "shop", Poll: time.Second, Batch: 1000, Keep: 7 * 24 * time.Hour,
		MinAge: 2 * time.Second,
	}
	if wrong != nil || len(list) != 1 || list[0] != want {
		t.Errorf("got %+v, %v, want %+v", list, wrong, want)
	}
	if label := list[0].Label(); label != "shop/a.b_c-1" {
		t.Errorf("label %s", label)
	}
}

func TestRangesExpand(t *testing.T) {
	for raw, want := range map[string]string{
		`[{"name":"pay","dsn":"mysql://r@db:3306/pay_{08..11}"}]`: "" +
			"pay-08 db:3306/pay_08/dispatcher_outbox|" +
			"pay-09 db:3306/pay_09/dispatcher_outbox|pay-10 db:3306/pay_10/dispatcher_outbox|" +
			"pay-11 db:3306/pay_11/dispatcher_outbox",
		`[{"name":"s{8..9}.x","dsn":"postgres://r@db{8..9}:1/pay{8..9}","table":"t_{8..9}"}]`: "" +
			"s8.x db8:1/pay8/t_8|s9.x db9:1/pay9/t_9",
		`[{"name":"a","dsn":"postgres://r@db/p{5..5}","origin":"o{5..5}"}]`: "a-5 o5",
		`[{"name":"a","dsn":"postgres://r@db{7..7}/p","password_file":"/run/pw{7..7}"}]`: "" +
			"a-7 db7:5432/p/dispatcher_outbox /run/pw7",
		`[]`: "",
	} {
		list, wrong := relay.ParseSources([]byte(raw))
		if wrong != nil {
			t.Errorf("%s: %v", raw, wrong)
		}
		var got []string
		for _, c := range list {
			got = append(got, strings.TrimSuffix(c.Name+" "+c.Origin+" "+c.PasswordFile, " "))
		}
		if strings.Join(got, "|") != want {
			t.Errorf("%s: got %v", raw, got)
		}
	}
}

func TestWrongSourcesAreRefused(t *testing.T) {
	const dsn = `"dsn":"mysql://relay:sEcret@db/pay"`
	many := strings.Repeat(`,{"name":"a","dsn":"mysql://r@h/d{000..999}"}`, 2)
	long := strings.Repeat("a", 62)
	refuses(t, map[string]string{
		`{}`:     ": must be a list",
		`[`:      ": is not JSON",
		`[] []`:  ": has text after its end",
		`[1]`:    "[0]: must be an object",
		`[null]`: "[0].name: must have 1 to 64|[0].dsn: must be a URL",
		`[{"name":"a",` + dsn + `},{"name":"a","dsn":"mysql://u@h/d"}]`: "[1].name: is the same as",
		`[{"name":"a",` + dsn + `},{"name":"b",` + dsn + `}]`:           "[1].table: is the same as",
		`[{"name":"a{1..2}",` + dsn + `}]`:                              "[0].table: is the same as",
		`[` + many[1:] + `]`:                                            "[1]: has more than 1000 sources",
		strings.Repeat(" ", 1<<20+1):                                    ": is longer than 1 MiB",
	})
	refuses(t, members("name", dsn, map[string]string{
		`"A"`: "must have 1 to 64", `"a/b"`: "must have 1 to 64", `""`: "must have 1 to 64",
		`"` + long + `{100..101}"`: "must have 1 to 64",
	}))
	refuses(t, members("dsn", `"name":"a"`, map[string]string{
		`"sqlite://f"`: "must be a URL", `"mysql://h"`: "must be a URL",
		`"relay:sEcret@tcp(h)/d"`: "must be a URL", `"mysql://u:sEc/ret@h/d"`: "must be a URL",
		`"mysql://u:sEcr%et@h/d"`: "must be a URL", `"mysql://u:sE#cret@h/d"`: "must be a URL",
		`"mysql://u@h/d?sEc=1"`: "must be a URL", `"postgres://u:sEc@h/d?sslmode=no"`: "must be a URL",
		`"mysql://u@h/d{1..2}_{1..3}"`: "has the range {1..3} beside {1..2}",
		`"mysql://u@h/d{2..1}"`:        "has the range {2..1}, which must ascend",
		`"mysql://u@h/d{0..1000}"`:     "has the range {0..1000}, which must ascend",
	}))
	for member, values := range map[string]map[string]string{
		"poll": {
			`"9ms"`: "must be from 10ms to 1m0s", `"61s"`: "must be from 10ms to 1m0s",
			`""`: "must be a duration", `"5"`: "must be a duration",
		},
		"keep":    {`"-1s"`: "must be from", `"367d"`: "must be from"},
		"min_age": {`"-1s"`: "must be from", `"61m"`: "must be from"},
		"batch":   {`0`: "must be from 1 to 1000", `1001`: "must be from 1 to 1000"},
		"table": {
			`"a b"`: "must be a table", `"a.b.c"`: "must be a table", `"a."`: "must be a table",
			`"` + strings.Repeat("a", 55) + `"`: "must be a table",
		},
		"origin":  {`"` + strings.Repeat("a", 501) + `"`: "must have at most 500"},
		"project": {`"a b"`: "must be the name"},
	} {
		refuses(t, members(member, `"name":"a",`+dsn, values))
	}
	for member, want := range map[string]string{
		`"pol":"1s"`:  `[0]: has the unknown member "pol"; there are name,`,
		`"poll":1`:    "[0]: has the member poll, which must be a text",
		`"batch":"1"`: "[0]: has the member batch, which must be a whole",
		`"tail":"no"`: "[0]: has the member tail, which must be true",
	} {
		refuses(t, map[string]string{`[{"name":"a",` + dsn + `,` + member + `}]`: want})
	}
}

// members returns lists of one source with other members and a wrong value of a member.
func members(member, others string, values map[string]string) map[string]string {
	all := make(map[string]string)
	for value, want := range values {
		at := "[0]." + member + ": "
		if strings.Contains(want, "which must ascend") {
			at = "[0]: "
		}
		all[`[{`+others+`,"`+member+`":`+value+`}]`] = at + want
	}
	return all
}

// refuses checks that each list has the errors that begin with the given texts, and that no error contains a
// password.
func refuses(t *testing.T, lists map[string]string) {
	t.Helper()
	for raw, want := range lists {
		list, wrong := relay.ParseSources([]byte(raw))
		var got []string
		for _, e := range wrong {
			got = append(got, e.Field+": "+e.Message)
		}
		whole := strings.Join(got, "|")
		parts := strings.Split(want, "|")
		ok := len(parts) == len(got) && list == nil
		for i := range min(len(parts), len(got)) {
			ok = ok && strings.HasPrefix(got[i], parts[i])
		}
		if !ok || strings.Contains(whole, "sEc") || strings.Contains(whole, "ret@") {
			t.Errorf("%.120s: got %s, want %s", raw, whole, want)
		}
	}
}

// The same name in two projects is two sources.
func TestNamesAreOfAProject(t *testing.T) {
	list, wrong := relay.ParseSources([]byte(`[{"name":"a","dsn":"mysql://u@h/d"},
		{"name":"a","dsn":"mysql://u@h/e","project":"p"}]`))
	if wrong != nil || len(list) != 2 {
		t.Error(list, wrong)
	}
}
