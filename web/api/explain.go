package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
)

// explain is GET /v1/callbacks/{id}/explain: why it has not been sent yet.
func (a *API) explain(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	x, err := a.Engine.Explain(ctx, who.Project, id)
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	o.str("summary", x.Summary)
	o.until("next_at", x.NextAt)
	o.key("blocking")
	o.b = append(o.b, '[')
	for i := range x.Blocking {
		o.element(i)
		o.block(&x.Blocking[i])
		o.close()
	}
	o.b = append(o.b, ']')
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}

// block writes the members of what keeps a callback. What has no end, or none that is known, is until null.
func (o *jsonObject) block(b *control.Block) {
	o.str("code", b.Code)
	o.instant("since", b.Since)
	o.until("until", b.Until)
	o.str("detail", b.Detail)
	o.orNull("cure", b.Cure)
}

// evidence is GET /v1/callbacks/{id}/evidence: a text for the dispute "you never told us". It has what receivers answered in it, so no
// browser may take it for a page.
func (a *API) evidence(ctx context.Context, c *gin.Context, who caller) error {
	id, err := param(c)
	if err != nil {
		return err
	}
	text, err := a.Engine.Evidence(ctx, who.Project, id)
	if err != nil {
		return err
	}
	h := c.Writer.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	c.Writer.WriteHeader(http.StatusOK)
	_, err = c.Writer.WriteString(text)
	a.wrote(c, err)
	return nil
}
