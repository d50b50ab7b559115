package accept

import (
	"fmt"
	"strings"
	"testing"
)

// A rule that is too long as a whole is refused under the name of one of its fields.
func TestALongPollRuleIsRefusedByField(t *testing.T) {
	t.Parallel()
	values := strings.Repeat(`"`+strings.Repeat("x", 100)+`", `, 200)
	s := PollSubmission{Until: fmt.Appendf(nil, `{"success": [{"pointer": "/a", "in": [%s"y"]}]}`, values)}
	var f Findings
	if rule := s.rule(&f); rule != "" || len(f) != 1 || f[0].Field != "until" ||
		!strings.Contains(f[0].Message, "16 KiB") {
		t.Errorf("rule %q, findings %+v", rule, f)
	}
}
