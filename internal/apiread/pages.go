// Package apiread reads from the API server itself: long lists by pages, and answers that serve several readers.
package apiread

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pages lists in pages of at most limit and passes each to use, until that returns false. If first is true, a listing
// starts and use must drop its earlier pages. A listing starts again, once, if the snapshot of its pages expires.
func Pages[L client.ObjectList](ctx context.Context, reader client.Reader, limit int64, empty func() L,
	use func(page L, first bool) bool, opts ...client.ListOption) error {
	token, again := "", false
	for {
		page := empty() // decoding into a used list would keep fields of its old items
		paged := []client.ListOption{client.Limit(limit), client.Continue(token)}
		err := reader.List(ctx, page, slices.Concat(opts, paged)...)
		switch {
		case err != nil && token != "" && !again && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)):
			token, again = "", true
			continue
		case err != nil:
			return err
		}
		if !use(page, token == "") {
			return nil
		}
		if token = page.GetContinue(); token == "" {
			return nil
		}
	}
}
